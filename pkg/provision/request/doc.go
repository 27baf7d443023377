// Package request builds the request to a CSI driver for a claim, and the PersistentVolume from its answer, in the same
// way as the stock external-provisioner.
//
// Its functions are pure: the caller gathers the Facts, reads the Secret, and calls the driver. Equal facts give equal
// plans, so that a call with a lost answer can be repeated without any change (CSI spec, "CreateVolume": idempotent by
// name).
//
//	need, err := request.Needs(facts)     // the objects to read
//	plan, err := request.NewPlan(facts)   // with these objects
//	answer, err := driver.CreateVolume(plan.Request, secret)
//	pv, err := plan.PV(answer)            // RemediationDiscard: delete the volume
//
// All errors are *Error. An unknown object never counts as absent, so a plan requires all facts that it depends on.
// Package provision decides about retries, Events on the claim, and the prevention of leaks.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package request
