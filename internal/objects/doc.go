// Package objects has the records of API objects from which decisions are made: for each kind one record, with what its
// fields prove. Every controller of volume-guard and every explanation asks these.
//
// A record is a value without references to the object that it was read from. The zero value of a record speaks for
// processes that run, and for data that stays.
package objects
