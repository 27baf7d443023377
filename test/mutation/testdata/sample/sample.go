// Package sample has one of each guard that the operators know.
package sample

type facts struct {
	held, bound bool
	phase       string
	uses        int
}

type decision struct {
	Action string
	Timed  bool
}

type tracker struct {
	ready bool
	sent  map[string]bool
	wake  func(string)
}

func decide(f facts) decision {
	switch {
	case f.held:
		return decision{Action: "wait", Timed: true}
	case f.bound && f.uses > 0 || f.phase == "":
		return decision{Action: "keep"}
	}
	switch p := f.phase; p {
	case "Released", "Failed":
		return decision{Action: "delete"}
	case "Available":
	default:
		return decision{Action: "none"}
	}
	return decision{}
}

func (t *tracker) learn(name string, err error) bool {
	if err != nil {
		return false
	}
	t.sent[name] = true
	t.wake(name)
	return t.ready && !contains(names(), name)
}

// What only logs or saves memory is no guard.
func (t *tracker) forget(name string, logger *log) {
	if t.ready && name != "" {
		logger.Info("ready")
	} else {
		logger.Info("not ready")
	}
	t.Intern()
	delete(t.sent, name)
}

func (t *tracker) Intern() { t.ready = !t.ready }

type log struct{ lines []string }

func (l *log) Info(line string) { l.lines = append(l.lines, line) }

func names() []string { return []string{"a", "b"} }

func contains(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}
