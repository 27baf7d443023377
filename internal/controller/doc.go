// Package controller has the common parts of all controllers of this module: watch caches, queues of keys with workers
// and a backoff for each key, the order of start and stop, and the loop of steps observe → decide → do. The package
// itself decides nothing.
//
// [Settings] are the settings of every controller, and [Permissions] collects the permissions that it needs.
//
// A [Controller] owns the caches and the queues, and is embedded by the Controller of each feature; a [Queue] calls
// its [Reconciler] for one key at a time, which returns when the key is due again; [Steps] decides and acts until no
// step is due. [Calls] does so for a session of an engine (package engine/session), which is a value. [UntilQuiet],
// [Each] and [Progress] are for releases, which run instead of a Controller. [Pause] and [Repeat] wait on the clock
// of the Settings.
package controller
