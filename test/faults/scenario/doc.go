// Package scenario is the written form of a story about volumes: what users, the sidecar, the driver and the line between
// sidecar and API server do, one step after the other. Package faults plays it on a real control plane; the model checker
// and the random plans write their stories in it.
//
// A file is YAML (or JSON):
//
//	name: retain-turned-while-the-watch-is-held
//	story: The policy is turned to Retain while the sidecar's watch stands still. The volume stays.
//	want: {a: kept}
//	steps:
//	- {do: make, volume: a, kind: dynamic, policy: Delete}
//	- {do: wait, volume: a, for: protected}
//	- {do: hold, resource: persistentvolumes}
//	- {do: set-policy, volume: a, policy: Retain}
//	- {do: delete-claim, volume: a}
//	- {do: wait, volume: a, for: released}
//	- {do: let-go, resource: persistentvolumes}
//
// The sidecar (role owner, quick retries) and the driver run before the first step. When the last step is done, all that
// lasts is ended: the line is healed, the driver behaves and runs, the sidecar runs. Then everything must come to
// rest, and the oracle judges. want says besides how volumes must end: deleted (PV and volume are gone) or kept (the volume is
// there, and the driver was never asked). A volume is made under a name of its own; steps and rules use the short one. PV and
// claim of a volume have the same name.
//
// # Steps
//
// What users do. Each waits for the API server's answer and for nothing else. One that comes too late, for something
// that is gone or there already, does nothing.
//
//	make              volume; kind: dynamic (default) or static; policy: Delete (default) or Retain; of: the volume whose
//	                  handle it shares; unclaimed: true for no claim; mayLeak: true if the story deletes the PV before it can
//	                  be protected. Returns when the claim is bound.
//	delete-claim      volume
//	delete-pv         volume
//	set-policy        volume, policy
//	recreate-claim    volume: a new claim of the old name
//	take-back         volume: an administrator takes the UID out of the PV's claimRef
//	strip-finalizer   volume: somebody takes the sidecar's finalizer off
//	attach, detach    volume: its VolumeAttachment
//
// What happens to the programs. A sidecar that ends by itself, or by a rule, is started again at once, as a kubelet does.
//
//	kill, start       the sidecar: kill -9, and not started again until start
//	pause, resume     the sidecar: SIGSTOP and SIGCONT
//	kill-driver, start-driver
//	crash-at-call     nth, at: kill the sidecar at its nth DeleteVolume: received, done (in the driver, no answer) or answered
//	                  (nothing that it makes of the answer reaches the API server)
//
// What happens to the line and the driver.
//
//	api               rules: replaces the rules of test/faults/proxy; object patterns begin with the volume. none: no rules
//	driver            calls: replaces the driver's fault plan (mock-driver/faults); volumeName is the volume
//	hold, let-go      resource: its watches stand still, and go on. A lagging cache
//	cut               resource: its watches break off
//	freeze, partition, heal
//	mark              remembers the present resourceVersion; the version "mark" in a rule with effect stale is the last one
//
// Waiting. The time allowed is far above what anything takes; what does not come is an error of the story.
//
//	wait              volume, for: protected, unprotected, bound, released, terminating, gone, claim-gone, off-disk, called (the
//	                  driver has received nth DeleteVolume, default 1), applied (rules of api were applied nth times), crashed (the
//	                  sidecar was ended nth times, and runs again), ready (the sidecar is)
//	pass              time: lets time pass, such as 200ms, where nothing can be seen from outside
//	rest              waits until every PV is at rest
package scenario
