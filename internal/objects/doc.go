// Package objects defines the records of API objects that decisions are made from. Each kind has one record, whose
// methods say which conclusions its fields prove, and which every controller and explanation of volume-guard uses.
//
// A record is a value without references to the object that it was read from. Its zero value argues for running
// processes, and for keeping data.
package objects
