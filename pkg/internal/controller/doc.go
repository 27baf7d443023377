// Package controller is the one work loop of all controllers: a queue of keys, workers, a
// back-off for each key, and a stop that lets work in hand end.
//
// It decides nothing: a Handler says after each run when its key is to be seen again.
package controller
