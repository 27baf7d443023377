// Package scenario is the written form of a volume's story: the actions of users, the sidecar, the driver and the
// connection between sidecar and API server, one step after the other. Package faults plays it on a real control plane;
// the model checker and the random plans write scenarios.
//
// A file is YAML (or JSON):
//
//	name: retain-turned-while-the-watch-is-held
//	description: The policy is turned to Retain while the sidecar's watch stands still. The volume stays.
//	want: {a: kept}
//	steps:
//	- {do: make, volume: a, kind: dynamic, policy: Delete}
//	- {do: wait, volume: a, for: protected}
//	- {do: hold, resource: persistentvolumes}
//	- {do: set-policy, volume: a, policy: Retain}
//	- {do: delete-claim, volume: a}
//	- {do: wait, volume: a, for: released}
//	- {do: release, resource: persistentvolumes}
//
// The sidecar (role owner, quick retries) and the driver run before the first step. After the last step all lasting
// faults end: the line is healed, the driver behaves and runs, and the sidecar runs. Then everything must come to rest,
// and the oracle judges. want also says how volumes must end: deleted (PV and volume are gone, and the claim of a
// provisioned volume, too), kept (the volume exists, and the driver was never asked to delete it) or bound (claim, PV
// and volume of a provisioned volume exist, and nothing is in flight). A volume is created under its own name; steps
// and rules use the short one. PV and claim of a volume have the same name, except for a provisioned volume, whose PV
// is named by the claim's UID.
//
// # Steps
//
// Steps of users. Each waits only for the API server's answer. A step that comes too late, for an object that is gone
// or exists already, does nothing.
//
//	make              volume; kind: dynamic (default), static or provisioned; policy: Delete (default) or Retain;
//	                  of: the volume whose handle it shares; unclaimed: true for no claim; mayLeak: true if the
//	                  scenario deletes the PV before it can be protected. Returns when the claim is bound. Of a
//	                  volume that is provisioned, a StorageClass with the policy and a claim are made, and the
//	                  sidecar does the rest; the step does not wait.
//	delete-claim      volume
//	delete-pv         volume
//	set-policy        volume, policy
//	recreate-claim    volume: a new claim of the old name, which names no PV
//	restore-claim     volume: a new claim of the old name, which names the PV, as after a restore from a backup
//	bind-again        volume: an administrator writes the claim's UID into the PV's claimRef
//	take-back         volume: an administrator takes the UID out of the PV's claimRef
//	strip-finalizer   volume: another user removes the sidecar's finalizer
//	attach, detach    volume: its VolumeAttachment
//	delete-class, make-class
//	                  volume: the StorageClass of a provisioned volume goes, and comes back unchanged
//
// Steps of the programs. A sidecar that ends by itself, or by a rule, is started again at once, as by a kubelet.
//
//	kill, start       the sidecar: kill -9, and not started again until start
//	stay-down         a sidecar that is ended by a rule or at a call is not started again until start
//	pause, resume     the sidecar: SIGSTOP and SIGCONT
//	kill-driver, start-driver
//	crash-at-call     method: DeleteVolume (default) or CreateVolume; nth, at: kill the sidecar at its nth call of
//	                  that method: received, done (in the driver, no answer) or answered (nothing that it makes of
//	                  the answer reaches the API server)
//
// Steps of the line and the driver.
//
//	api               rules: replaces the rules of test/faults/proxy; object patterns begin with the volume, which
//	                  is the name of its claim where it is provisioned. none: no rules
//	driver            calls: replaces the driver's fault plan (mock-driver/faults); volumeName is the volume. Rules
//	                  for CreateVolume have none: they are about all that are provisioned, and no others
//	hold, release     resource: its watches stand still, and continue: a lagging cache
//	cut               resource: its watches break off
//	freeze, partition, heal
//	mark              remembers the present resourceVersion; the version "mark" in a rule with effect stale is the
//	                  last one
//
// Waiting. The allowed time is far above the usual one. A condition that does not come is an error of the scenario.
//
//	wait              volume, for: protected, unprotected, bound, released, terminating, gone, claim-gone, off-disk,
//	                  called (the driver has received nth DeleteVolume, default 1), applied (rules of api were
//	                  applied nth times), crashed (the sidecar was ended nth times, and runs again), down (it was
//	                  ended nth times, and stays down), ready (the sidecar is). For a volume that is provisioned
//	                  also in-flight and settled (the in-flight log has, or has not, an entry for it), asked (the
//	                  driver has received nth CreateVolume for it), on-disk
//	pass              time: lets time pass, such as 200ms, where nothing can be seen from outside
//	rest              waits until every PV and claim is at rest
package scenario
