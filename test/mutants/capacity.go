package main

// capacity are the guards of the objects that tell what a driver has left: which are ours to delete, and when.
func capacity() []mutant {
	const in, because = "pkg/capacity", "the model has no capacity"
	return []mutant{
		{
			name: "capacity: another's object is ours", in: in, file: "snapshot.go",
			before: "if o.Ours && !o.Terminating {", after: "if !o.Terminating {", because: because,
		},
		{
			name: "capacity: an object that is being deleted is deleted again", in: in, file: "snapshot.go",
			before: "if o.Ours && !o.Terminating {", after: "if o.Ours {", because: because,
		},
		{
			name: "capacity: a class of which nothing is known is gone", in: in, file: "decide.go",
			before: "case s.Class == ClassUnknown || s.Place == PresenceUnknown:", after: "case s.Place == PresenceUnknown:", because: because,
		},
		{
			name: "capacity: a place of which nothing is known is gone", in: in, file: "observe.go",
			before: "\tcase m.places == nil:\n", after: "", because: because,
		},
		{
			name: "capacity: a class is gone before the cache is filled", in: in, file: "observe.go",
			before: "if !c.Synced() {\n\t\treturn ClassUnknown\n\t}\n", after: "", because: because,
		},
		{
			name: "capacity: an object that we deleted is there until the cache shows it", in: in, file: "observe.go",
			before: "if o.Spot == spot && !m.ended[o.UID] && (", after: "if o.Spot == spot && (", because: because,
		},
		{
			name: "capacity: an object that we made is not there until the cache shows it", in: in, file: "observe.go",
			before: "if wrote {\n\t\tthere = append(there, own)\n\t}\n", after: "", because: because,
		},
		{
			name: "capacity: what we wrote counts although the cache knows better", in: in, file: "observe.go",
			before: "m.ended[own.UID] || from.Reached(own.ResourceVersion)", after: "m.ended[own.UID]", because: because,
		},
		{
			name: "capacity: what we deleted counts as what we wrote last", in: in, file: "observe.go",
			before: "m.ended[own.UID] || from.Reached(own.ResourceVersion)", after: "from.Reached(own.ResourceVersion)", because: because,
		},
		{
			name: "capacity: an object is deleted whatever became of it", in: in, file: "cluster.go",
			before: "DeleteOptions{Preconditions: &only}", after: "DeleteOptions{Preconditions: &metav1.Preconditions{UID: only.UID}}", because: because,
		},
		{
			name: "capacity: of two objects the one is deleted that is kept up to date", in: in, file: "decide.go",
			before: "Object: ours[len(ours)-1]}", after: "Object: ours[0]}", because: because,
		},
		{
			name: "capacity: a driver's negative size is told", in: in, file: "execute.go",
			before: "if err == nil && (a.Left.Bytes < 0 || a.Largest.Bytes < 0) {", after: "if false {", because: because,
		},
		{
			name: "capacity: an answer that did not come counts", in: in, file: "execute.go",
			before: "c.memory.answered(spot, a, now, err == nil)", after: "c.memory.answered(spot, a, now, true)", because: because,
		},
		{
			name: "capacity: what happens while the driver is asked does not count", in: in, file: "execute.go",
			before: "\tc.memory.asking(spot)\n\tnow := c.cfg.Clock.Now()\n\tresponse, err := c.asks.GetCapacity(ctx, request)\n",
			after:  "\tnow := c.cfg.Clock.Now()\n\tresponse, err := c.asks.GetCapacity(ctx, request)\n\tc.memory.asking(spot)\n", because: because,
		},
	}
}
