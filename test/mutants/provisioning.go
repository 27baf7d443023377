package main

// provisioning are the guards of what is deleted, and of what is let go, while volumes are made.
func provisioning() []mutant {
	const in = "pkg/provision"
	const noSources = "the model has no sources of data"
	return []mutant{
		{
			name: "a source that is read is let go", in: in, file: "source.go",
			before: "if !p.awake.Load() || p.inUse(of) {", after: "if !p.awake.Load() {",
			because: noSources,
		},
		{
			name: "a source is let go while another worker begins to protect it", in: in, file: "source.go",
			before: "\tdefer p.protected.turn(of)()\n", after: "",
			because: noSources,
		},
		{
			name: "a source of another provisioner's claim is let go", in: in, file: "source.go",
			before: "return !p.protects || !p.ours(claim) || slices", after: "return !p.protects || slices",
			because: noSources,
		},
		{
			name: "a source that cannot be protected is read for the first time", in: in, file: "source.go",
			before: "lost && !w.nothingBegun()", after: "lost",
			because: noSources,
		},
		{
			name: "a source of another namespace needs no grant", in: "pkg/provision/order", file: "source.go",
			before: "if err := f.checkGrant(source); err != nil {", after: "if err := f.checkGrant(source); err != nil && f.CleanUp {",
			because: noSources,
		},
		{
			name: "a grant for another namespace's claims counts", in: "pkg/provision/order", file: "grant.go",
			before: "return slices.Contains(g.From, from) && slices", after: "return (slices.Contains(g.From, from) || true) && slices",
			because: noSources,
		},
		{
			name: "a grant for another object counts", in: "pkg/provision/order", file: "grant.go",
			before: "(to.Name == \"\" || to.Name == ref.Name)", after: "true",
			because: noSources,
		},
		{
			name: "a grant of another namespace counts", in: "pkg/provision/order", file: "grant.go",
			before: "return g.Namespace == source.Namespace && g.allows", after: "return g.allows",
			because: noSources,
		},
		{
			name: "a sweep frees the snapshot of another driver", in: in, file: "sweep.go",
			before: "case s.Content.Driver != f.Driver:", after: "case false:",
			because: noSources,
		},
		{
			name: "a sweep frees a snapshot that is restored", in: in, file: "sweep.go",
			before: "case f.InUse:", after: "case false:",
			because: noSources,
		},
		{
			name: "a sweep without a provisioner does not look at claims", in: in, file: "sweep.go",
			before: "if u[of] {", after: "if false {",
			because: noSources,
		},
		{
			name: "a claim that is bound to another PV still needs its volume", in: in, file: "snapshot.go",
			before: "return c.Terminating || c.Gone || c.boundElsewhere() || !c.Ours && s.Tried", after: "return c.Terminating || c.Gone || !c.Ours && s.Tried",
			world: "bound elsewhere",
		},
		{
			name: "a claim that is being deleted still needs its volume", in: in, file: "snapshot.go",
			before: "return c.Terminating || c.Gone || c.boundElsewhere()", after: "return c.Gone || c.boundElsewhere()",
			world: "slow",
		},
		{
			name: "a claim that is gone is held as it was last seen", in: in, file: "snapshot.go",
			before: "return s.Claim.Protected && !s.Claim.Gone }", after: "return s.Claim.Protected }",
			world: "claim",
		},
		{
			name: "a half-made volume is deleted without a look at its PV", in: in, file: "decide.go",
			before: "case s.PV == PVUnknown || !s.pvFresh(now):\n\t\treturn step(ReadPV, ReasonCleanUp)", after: "case false:\n\t\treturn step(ReadPV, ReasonCleanUp)",
			world: "slow",
		},
		{
			name: "a look at the PV counts for ever", in: in, file: "snapshot.go",
			before: "return !s.PVRead.IsZero() && now.Sub(s.PVRead) <= liveFor", after: "return !s.PVRead.IsZero()",
			world: "slow",
		},
		{
			name: "a volume that is not as ordered is deleted without a look at its PV", in: in, file: "decide.go",
			before: "case s.PV == PVUnknown || !s.pvFresh(now):\n\t\treturn step(ReadPV, ReasonDiscard)", after: "case false:\n\t\treturn step(ReadPV, ReasonDiscard)",
			world: "not as ordered",
		},
		{
			name: "a claim is let go before its half-made volume is deleted", in: in, file: "decide.go",
			before: "case s.Volume == VolumeMade:\n\t\treturn step(DeleteVolume, ReasonCleanUp)", after: "case s.Volume == VolumeMade:\n\t\treturn release(s, ReasonNothing)",
			world: "slow",
		},
		{
			name: "the volume of a PV that is stored is deleted", in: in, file: "decide.go",
			before: "case s.hasPV():\n\t\treturn release(s, ReasonStored)\n\tcase s.Volume == VolumeNone:", after: "case s.Volume == VolumeNone:",
			world: "slow",
		},
		{
			name: "a bound claim shows that what was made meanwhile is its PV's", in: in, file: "snapshot.go",
			before: "s.boundHere() && (!s.Tried || s.Volume == VolumeNone)", after: "s.boundHere()",
			world: "claim, replicas",
		},
		{
			name: "the volume of a PV that may have been kept is deleted with the claim", in: in, file: "decide.go",
			before: "case s.Claim.bound() && s.PV != PVElsewhere:\n", after: "case false:\n",
			because: "no PV is turned to Retain in the model",
		},
		{
			name: "the end of a claim is judged by what a run began with", in: in, file: "observe.go",
			before: "if claim, ok := last.(*v1.PersistentVolumeClaim); ok {", after: "if claim, ok := last.(*v1.PersistentVolumeClaim); ok && claim == nil {",
			because: "no run waits for another of the same claim in the model",
		},
		{
			name: "a claim is gone before its last state is told", in: in, file: "observe.go",
			before: "return told || !w.life.tried", after: "return told || true",
			because: "the cache and its handler are one in the model",
		},
		{
			name: "a PV of another claim with the volume does not count", in: in, file: "decide.go",
			before: "case s.Volume == VolumeMade && (s.Shared || s.anothersPV() && s.PVHandle == s.Handle),", after: "case s.Volume == VolumeMade && s.Shared,",
			because: "the volume's name alone tells what PV there is in the model, and namedAlone sees that",
		},
		{
			name: "a PV of another name with the volume does not count", in: in, file: "decide.go",
			before: "case s.Volume == VolumeMade && (s.Shared || s.anothersPV()", after: "case s.Volume == VolumeMade && (s.anothersPV()",
			because: "two names never have one volume in the model",
		},
		{
			name: "a volume that another claim may have is deleted as not as ordered", in: in, file: "decide.go",
			before: "case s.Shared || !s.Claim.namedAlone():", after: "case s.Shared:",
			because: "no volume of two claims is made otherwise than ordered in the model",
		},
		{
			name: "two claims work on one volume name at once", in: in, file: "decide.go",
			before: "case s.NameInHand:\n\t\treturn timed(ReasonNameTaken)\n\tcase s.PV == PVUnknown", after: "case s.PV == PVUnknown",
			because: "whoever has begun keeps the name in hand, and after a restart nobody in the model's world of one name is held",
		},
		{
			name: "a refusal after an unknown outcome shows that nothing is left", in: in, file: "execute.go",
			before: "&& !it.doubt && before == VolumeNone:", after: "&& (true || it.doubt || before == VolumeNone):",
			world: "refused",
		},
		{
			name: "an error of the driver shows that nothing is left", in: in, file: "execute.go",
			before: "\tdefault:\n\t\tit.doubt = true\n", after: "\tdefault:\n\t\tit.volume, it.failed = VolumeNone, true\n",
			world: "slow",
		},
		{
			name: "the claim is held by a write that anything may have come before", in: in, file: "cluster.go",
			before: "ResourceVersion: c.ResourceVersion, Add: []string{a.finalizer}", after: "Add: []string{a.finalizer}",
			because: "the patch is the API server's in the model",
		},
		{
			name: "a claim that lost its finalizer is taken for untouched", in: in, file: "execute.go",
			before: "if it := w.life; !it.tried || it.volume == VolumeNone {", after: "if it := w.life; true {",
			world: "refused",
		},
		{
			name: "any PV of the name is the claim's", in: in, file: "cluster.go",
			before: "case stateOf(reclaim.PVAt(node, there), c, reclaim.PVOf(pv).Driver) == PVStored:", after: "case true:",
			world: "name taken",
		},
		{
			name: "a PV stored a moment ago is not seen by another claim of its name", in: in, file: "observe.go",
			before: "if stored := w.shelf.get(s.Claim.PVName); !shown && stored != nil {", after: "if stored := w.shelf.get(s.Claim.PVName); false {",
			world: "one name, late caches",
		},
		{
			name: "a PV that is gone when its CREATE is answered is taken for new", in: in, file: "shelf.go",
			before: "if !s.expected[pv.Name].told {", after: "if true {",
			world: "one name, late caches",
		},
		{
			name: "after a LetGo that may have come through a volume may be looked for", in: in, file: "execute.go",
			before: "\tw.life.volume, w.life.handle, w.life.made = VolumeNone, \"\", nil\n\tversion", after: "\tversion",
			world: "claim",
		},
		{
			name: "the library deletes volumes' PVs", in: in, file: "library.go",
			before: "return &controller.IgnoredError{Reason: \"volumes are deleted elsewhere\"}", after: "return nil",
			because: "the library is told of no PV in the model",
		},
		{
			name: "a claim is not held before its first volume", in: in, file: "decide.go",
			before: "case s.Protects && !s.Claim.Protected:", after: "case false:",
			world: "claim",
		},
		{
			name: "a finalizer that is off is taken off again while the cache lags", in: in, file: "observe.go",
			before: "if it.letGo != \"\" && kube.Newer(it.letGo, s.Claim.ResourceVersion) {", after: "if it.letGo != \"\" && kube.Newer(it.letGo, s.Claim.ResourceVersion) && false {",
			because: "one patch more that changes nothing",
		},
		{
			name: "a volume of which nothing is known is not finished without its class", in: in, file: "decide.go",
			before: "case s.ClassGone && s.Tried && s.Ordered:", after: "case false:",
			because: "a claim that is held then is what the reason says",
		},
		{
			name: "a class that comes back wakes nobody", in: in, file: "controller.go",
			before: "AddFunc:    func(any) { p.wakeAll() },", after: "AddFunc:    func(any) {},",
			because: "what the handlers of classes call, the model calls itself",
		},
		{
			name: "a PV on another node is this node's", in: in, file: "cluster.go",
			before: "case pv.Reach == reclaim.ReachElsewhere:", after: "case false:",
			because: oneProcess,
		},
		{
			name: "a claim that is bound on a node has its PV there", in: in, file: "snapshot.go",
			before: " && s.PV != PVUnknown)", after: ")",
			because: oneProcess,
		},
		{
			name: "a node does not look whether another has made the volume", in: in, file: "decide.go",
			before: "case s.Claim.At != AtCluster && s.PV == PVUnknown && s.Volume == VolumeUnknown:", after: "case false:",
			because: oneProcess,
		},
	}
}
