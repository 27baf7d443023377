// Package events reports to people why an object is kept: as Events on it, in the log and in two metrics, once for each
// change of the reason. The reasons and their sentences belong to the packages that decide (package reasons).
package events
