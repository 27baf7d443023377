package main

// leading are the guards of a leader that was paused for longer than its lease.
func leading() []mutant {
	const because = "the model sends a call in the moment in which it is decided, and has no clocks"
	return []mutant{
		{
			name: "the lease is not looked at", file: "decide.go",
			before: "case !s.Leading:", after: "case false:",
			world: "former leader",
		},
		{
			name: "the lease is looked at where a run begins alone", file: "execute.go",
			before: "w.facts.Brake, w.facts.Leading = w.observer.brake.State(), holds(w.observer.lease)",
			after:  "w.facts.Brake = w.observer.brake.State()",
			world:  "former leader",
		},
		{
			name: "a leader past its lease reports what failed", file: "events.go",
			before: "func (r *reports) mayTell() bool { return holds(r.lease) }",
			after:  "func (r *reports) mayTell() bool { return true }",
			world:  "former leader",
		},
		{
			name: "a call that was decided is sent past the lease", file: "call.go",
			before: "if a.err = r.mayAct(); a.err != nil {", after: "if false {", because: because,
		},
		{
			name: "a leader past its lease shows what it remembers in metrics", file: "metrics.go",
			before: "lapsed := leading && !holds(i.observer.lease)", after: "lapsed := false", because: because,
		},
		{
			name: "a renewal counts from its answer", in: "pkg/lease", file: "clock.go",
			before: "o.clock.renew(sent, ", after: "o.clock.renew(max(sent, o.clock.now()), ", because: because,
		},
		{
			name: "a renewal without an answer counts", in: "pkg/lease", file: "clock.go",
			before: "if err := send(); err != nil {", after: "if err := send(); err != nil && false {", because: because,
		},
		{
			name: "a lease that is being released counts", in: "pkg/lease", file: "clock.go",
			before: "c.held = false\n", after: "", because: because,
		},
		{
			name: "a leader takes the Lease back that another has held", in: "pkg/lease", file: "clock.go",
			before: "if c.held && !c.seen && holder != self {", after: "if false {", because: because,
		},
		{
			name: "writes are sent past the lease", in: "pkg/lease", file: "guard.go",
			before: "if writes(request) {", after: "if false && writes(request) {", because: because,
		},
		{
			name: "volumes are made and deleted past the lease", in: "pkg/csidriver", file: "driver.go",
			before: "if d.cfg.Lease == nil || d.cfg.Lease.Left() > 0 {", after: "if true {", because: because,
		},
		{
			name: "the Lease is released while work is in hand", in: "cmd/internal/leader", file: "leader.go",
			before: "&& !u.term.over() {", after: "&& false {", because: because,
		},
	}
}
