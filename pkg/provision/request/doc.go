// Package request says what is asked of a CSI driver for a claim, and which PersistentVolume comes
// of its answer, as the stock external-provisioner does it.
//
// Its functions are pure: the caller gathers the Facts, reads the Secret, and calls the
// driver. The same facts give the same plan, so that a call whose answer was lost can be
// repeated word for word (CSI spec, "CreateVolume": idempotent by name).
//
//	need, err := request.Needs(facts)            // what is still to be read
//	o, err := request.NewPlan(facts)                // with that read
//	answer, err := driver.CreateVolume(o.WithSecrets(secret))
//	pv, err := o.PV(answer)                    // RemediationDiscard: delete what was made
//
// All errors are *Error. What is not known is never taken for absent: where a fact is missing
// that the plan hangs on, there is no plan. When to try again, what to write to the claim, and
// how nothing leaks is up to package provision.
package request
