package events

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestRegisterAllOrNone checks that a failed registration leaves nothing behind, so that it can be repeated.
func TestRegisterAllOrNone(t *testing.T) {
	t.Parallel()
	counter := func(name string) prometheus.Collector {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	registry, taken := prometheus.NewRegistry(), counter("taken")
	registry.MustRegister(taken)
	for range 2 {
		if err := Register(registry, counter("one"), counter("taken"), counter("three")); err == nil {
			t.Error("a name was registered twice")
		}
		if registered, err := registry.Gather(); err != nil || len(registered) != 1 {
			t.Errorf("after a failure, %d metrics are registered: %v", len(registered), err)
		}
	}
	if registry.Unregister(taken); Register(registry, counter("one"), counter("taken")) != nil {
		t.Error("once the name is free, it cannot be registered")
	}
	if err := Register(nil, taken); err != nil {
		t.Errorf("without a registry: %v", err)
	}
}
