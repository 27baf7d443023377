package fencing

// Back reports whether the node has come back since the proof of its fence: it was rebooted and has renewed its Lease.
// It is false without a proof and while a fact is unknown.
func (f Facts) Back() bool { return f.back() }

// Confirmed reports whether the fence has a person's confirmation that counts as a proof, because the node has not
// contradicted it.
func (f Fence) Confirmed() bool { return f.confirmed() }

// Ending reports whether the end of the fence was requested.
func (f Fence) Ending() bool { return f.ended() }

// Undoes returns the names of the agents that have something to undo when the fence ends, the last one first.
func (f Fence) Undoes() (names []string) {
	for {
		attempt := f.toUndo()
		if attempt == nil {
			return names
		}
		names = append(names, attempt.Agent)
		status := f.Status.DeepCopy()
		for i := range status.Attempts {
			if a := &status.Attempts[i]; a.Agent == attempt.Agent && a.UndoneAt == nil {
				a.UndoneAt = &a.StartedAt
			}
		}
		f.Status = *status
	}
}
