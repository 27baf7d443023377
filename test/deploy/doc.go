// Package deploy tests what operators install (deploy/) against a real API server: that it is
// accepted as it is, grants no more than it says, and runs under the strictest Pod Security.
package deploy
