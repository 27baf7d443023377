package main

// exception is a mutant that no test can notice.
type exception struct {
	// name is the mutant's name. With * in place of the function it stands for all mutants of that name in a package.
	// because is the reason why the mutant has no visible effect.
	name, because string
}

var exceptions = []exception{
	{"internal/engine/provision:*/without f.named() && #2", "namedLive implies named"},
	{"pkg/provision/inflight:shard.refer/if s.seen.err == nil && !s.isKept(key) {continue} → never",
		"an entry that is stored and neither wanted nor being removed is kept; it saves the parsing of all others"},
	{"internal/engine/reclaim:*/if len(b.Recent) <= b.Limit {return false} → never",
		"the next check comes to the same after what is too old is dropped"},
	{"internal/engine/reclaim:*/if !e.Handles.Shared(e.handle(&pv), except) {return nil} → never",
		"it saves a list of one name"},
	{"internal/engine/reclaim:*/without len(due) > 0 &&", "it saves a look at the attachments"},
	{"internal/engine/reclaim:*/if s.Deleting != \"\" {delete(e.Deleting, s.Deleting)} → always",
		"no volume has the empty handle"},
	{"internal/engine/intree:*/without before.Source != now.Source &&", "it is removed, and added again"},
	{"internal/engine/intree:*/without bytes.Contains(fields.GetRawBytes(), []byte(Finalizer)) &&",
		"it saves the parsing of what does not have the finalizer"},
	{"internal/engine/intree:sourceOf/if err != nil {return Source{}} → never",
		"what is made of the API's types is JSON"},
	{"internal/engine/intree:sourceOf/if text, err = json.Marshal(source); err != nil {return Source{}} → never",
		"what is made of JSON is JSON"},
	{"internal/engine/intree:sourceOf/if p, ok := fields[\"path\"].(string); ok " +
		"{fields[\"path\"] = path.Clean(p)} → always", "a field that all have distinguishes none"},
	{"internal/objects:hasPhase/if !bytes.Contains(fields, []byte(`\"f:phase\"`)) {return false} → never",
		"it saves the parsing of what does not have the field"},
	{"pkg/reclaim:Controller.readSecrets/without err != nil ||", "with an error no Secret is named"},
	{"pkg/reclaim:secretOfClass/if err != nil {return volume.SecretRef{}, unclearOfClass(pv, fmt.Errorf(" +
		"\"its parameters have no translation for CSI driver %q…} → never",
		"translations fail because of topologies alone, which are left out"},
	{"pkg/reclaim:secretOfClass/without err == nil &&", "with an error there is no template"},
	{"pkg/reclaim:Controller.begin/if !found {return nil, reclaim.Step{}, false} → never",
		"on facts that are zero nothing is decided"},
	{"pkg/reclaim:Controller.protect/if !needed {return controller.Done()} → never", "the zero Ask calls nothing"},
	{"pkg/volume:translate/if !translator.IsPVMigratable(o) {return \"\", \"\"} → never",
		"it saves a copy of what has no translation"},
	{"pkg/volume:translate/without csi.Spec.CSI == nil ||", "a translation has a CSI source"},
	{"pkg/fencing:Controller.policyFacts/if n.Unreachable {v.Since, _ = c.view.since(n.Name)} → always",
		"a node that is reachable has no silence"},
	{"pkg/fencing:Controller.fenceNode/without f.Nodes[indexOf(f, name)].Fenced = true",
		"the live reads before the next creation show it, too"},
	{"internal/objects:LabeledNodeOf/without n.Labels = make(NodeLabels, 0, len(o.Labels))", "it saves memory"},
	{"pkg/fencing:view.clear/without !since.IsZero() &&", "the zero time is longer ago"},
	{"pkg/fencing/agents:jobs.start/without node = &v1.Node{}", "client-go returns an empty object with an error"},
	{"pkg/fencing/agents:custom.patch/if err != nil {return err} → never", "what is made of strings is JSON"},
	{"pkg/podsafety:*/if !found {return controller.Done()} → never", "on facts that are zero nothing is decided"},
	{"pkg/podsafety:observer.dueClaims/without found &&", "a claim that is zero needs no work"},
	{"pkg/podsafety:Controller.beginClaims/if c.observer.isClaimDue(of) {keys = append(keys, claimKey(of.Namespace, " +
		"of.Name))} → always", "the work on a claim that needs none writes nothing"},
	{"pkg/podsafety:Controller.reconcile/if s.Facts.Pod.Terminating {c.locks(s.Facts.Pod.Node)} → always",
		"a node without terminating pods needs no lock"},
	{"pkg/podsafety:Controller.hold/if p := objects.PodOf(o); !p.Held {c.observer.offer(p, " +
		"cache.NewObjectName(o.Namespace, o.Name).String())} → always", "a held pod needs no finalizer"},
	{"pkg/podsafety:observer.drop/return dropped → true", "nothing is reported about a pod that is no candidate"},
	{"pkg/podsafety:observer.settle/if !offered {o.tracker.Forget(p.UID)} → always",
		"the tracker has no record of a candidate"},
	{"pkg/podsafety:releaser.pass/if p.Held || marked {workers.Go(func() error { return r.one(ctx, p, marked) })} → " +
		"always", "a pod that is neither held nor marked is left alone by the decision, too"},
	{"pkg/podsafety:releaser.locks/if podsafety.DecideLock(f, r.cfg.Clock.Now()) != podsafety.RemoveLock {continue} → " +
		"never", "a release removes each lock"},
	{"pkg/podsafety:volumeLocks.refresh/without delete(l.written, node)", "it saves memory"},
	{"pkg/podsafety:Controller.locks/without c.cfg.VolumeLocks &&", "without locks the decision creates none"},
	{"pkg/podsafety:Controller.locks/without node != \"\" &&", "a pod without a node needs no lock"},
	{"pkg/podsafety:Controller.removeUnneeded/without err == nil &&", "with an error the volume is needed"},
	{"pkg/podsafety:Controller.isNeeded/without f.FenceSeen &&", "it saves the reads of volumes that no fence covers"},
	{"pkg/podsafety:Controller.isNeeded/without f.Pod.UID == by.uid &&", "only the fence of the holder's volume counts"},
	{"pkg/podsafety:Controller.isNeeded/without f.Pod.Node == node &&", "a pod stays on its node"},
	{"pkg/podsafety:Controller.patchMarks/if err := c.cluster.patchCondition(ctx, p.namespace, patch); " +
		"!errors.Is(err, kube.ErrGone) {errs = append(errs, err)} → always",
		"it is not tried again for an object that is gone"},
	{"pkg/podsafety:Controller.isNeeded/without err != nil ||", "with an error the lock is kept"},
	{"pkg/statefulset:*/if !found {return controller.Done()} → never", "on facts that are zero nothing is decided"},
	{"pkg/statefulset:observer.setsWith/if s, found := o.sets.Get(keyOf(namespace, name)); found {sets = append(sets, " +
		"s)} → always", "index and cache differ only between two steps of one event"},
	{"pkg/statefulset:setOf/without s.Namespace = unique.Make(o.Namespace).Value()", "it saves memory"},
	{"pkg/statefulset:podOf/without p.Namespace, p.Controller = unique.Make(o.Namespace).Value(), " +
		"unique.Make(p.Controller).Value()", "it saves memory"},
	{"pkg/statefulset:releaser.pass/if c.Marked {s, found := sets[keyOf(c.Namespace, c.Mark.Set)]} → always",
		"a claim that is not marked is left alone by the decision, too"},
	{"pkg/statefulset:releaser.set/without f.Rules.Removing = true",
		"a set that is not known to lack anything loses the annotation anyway"},
	{"pkg/singlenode:*/if !found {return controller.Done()} → never", "on facts that are zero nothing is decided"},
	{"pkg/singlenode:Controller.reconcile/without !found ||", "on facts that are zero nothing is decided"},
	{"pkg/singlenode:Controller.callOne/if err = failed; found {reply.Users = []singlenode.User{c.observer.user(p)}} → " +
		"always", "a pod without a UID has no lock"},
	{"pkg/singlenode:claimOf/without c.Namespace = unique.Make(o.Namespace).Value()", "it saves memory"},
	{"pkg/singlenode:volumeOf/without pv.Driver = unique.Make(pv.Driver).Value()", "it saves memory"},
	{"pkg/singlenode:releaser.claims/if c.marked() {locked = append(locked, c)} → always",
		"a claim without a lock is left alone by the decision, too"},
	{"pkg/leaks:listOnce/without err != nil &&", "without an error the outcome is Done"},
	{"pkg/leaks:survey.takePV/if _, inFlight := s.ofEntry[pv.Name]; inFlight {s.ofEntry[pv.Name] = true} → always",
		"only the names of entries are read"},
	{"pkg/inuse/pvc:batches.reading/without !found ||", "an answer that is not there has no pods"},
	{"pkg/inuse:tracker.end/without !known ||", "nothing was sent for an object that is not known"},
	{"pkg/inuse:Guard.releaseAll/without again ||", "one more pass finds nothing to remove"},
	{"pkg/inuse:Guard.releaseAll/if err := g.pause(ctx, g.cfg.RetryStart); err != nil {return out, err} → never",
		"the next pass ends with the context, too"},
	{"pkg/inuse:Guard.findOut/without !found ||", "an object that does not exist shows nothing"},
	{"pkg/inuse:Guard.findOut/if err := g.hear(ctx, w.Object); err != nil {return bared, err} → never",
		"the first pass ends with the context, too"},
	{"pkg/inuse:Guard.findOut/if g.tracker.isAlone() {break} → never", "another object shows the same"},
	{"pkg/inuse:Guard.hear/if err := g.pause(ctx, min(left, g.cfg.RetryStart)); err != nil {return err} → never",
		"the first pass ends with the context, too"},
}
