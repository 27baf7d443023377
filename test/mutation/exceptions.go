package main

// exception is a mutant that no test can notice.
type exception struct {
	// name is the mutant's, or with * in place of the function that of all that are called so in a package; because is
	// why it changes nothing that anybody could see.
	name, because string
}

var exceptions = []exception{
	{"pkg/internal/engine/provisioning:*/without f.named() && #2", "namedLive implies named"},
	{"pkg/internal/engine/reclaiming:*/if len(b.Recent) <= b.Limit {return false} → never",
		"the next check comes to the same after what is too old is dropped"},
	{"pkg/internal/engine/reclaiming:*/if len(names) == 0 {return nil} → never", "an empty list is as good as none"},
	{"pkg/internal/engine/reclaiming:*/if handle != \"\" {e.Handles.Remove(handle, pv)} → always",
		"nothing is kept for the empty handle"},
	{"pkg/internal/engine/reclaiming:*/if s.Deleting != \"\" {delete(e.Deleting, s.Deleting)} → always",
		"no volume has the empty handle"},
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
