package main

// exception is a mutant that no test can notice.
type exception struct {
	// name is the mutant's, because why it changes nothing that anybody could see.
	name, because string
}

var exceptions = []exception{
	{"pkg/internal/engine/provisioning:store/without f.named() && #2", "namedLive implies named"},
	{"pkg/leaks:listOnce/without err != nil &&", "without an error the outcome is Done"},
	{"pkg/leaks:survey.takePV/if _, inFlight := s.ofEntry[pv.Name]; inFlight {s.ofEntry[pv.Name] = true} → always",
		"only the names of entries are read"},
	{"pkg/inuse/pvc:batches.reading/without !found ||", "an answer that is not there has no pods"},
	{"pkg/inuse:notes.end/without !known ||", "nothing was sent for an object that is not known"},
	{"pkg/inuse:Guard.work/if !found {return loop.Next{}} → never",
		"of an object that is not there, the decision is to wait"},
	{"pkg/inuse:Guard.work/if !duty.Alone {g.proveAlone(ctx)} → always", "what is proven is not news again"},
	{"pkg/inuse:Guard.releaseAll/without again ||", "one more pass finds nothing to remove"},
	{"pkg/inuse:Guard.releaseAll/if err := g.pause(ctx, g.cfg.RetryStart); err != nil {return out, err} → never",
		"the next pass ends with the context, too"},
	{"pkg/inuse:Guard.findOut/without !found ||", "an object that does not exist shows nothing"},
	{"pkg/inuse:Guard.findOut/if err := g.hear(ctx, w.Object); err != nil {return bared, err} → never",
		"the first pass ends with the context, too"},
	{"pkg/inuse:Guard.findOut/if g.notes.isAlone() {break} → never", "another object shows the same"},
	{"pkg/inuse:Guard.hear/if err := g.pause(ctx, min(left, g.cfg.RetryStart)); err != nil {return err} → never",
		"the first pass ends with the context, too"},
}
