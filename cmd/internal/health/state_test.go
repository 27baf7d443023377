package health

import (
	"errors"
	"testing"
)

func TestState(t *testing.T) {
	waiting, old := errors.New("waiting for the first list"), errors.New("the lease is old")
	s := NewState(func() error { return waiting })
	if err := s.Alive(); err != nil {
		t.Errorf("waiting, Alive = %v: a restart does not help", err)
	}
	if err := s.Ready(); !errors.Is(err, waiting) {
		t.Errorf("waiting, Ready = %v", err)
	}
	s.Begin(func() error { return nil })
	s.Lack("this", "that")
	if err := s.Ready(); err == nil || err.Error() != "this\nthat" {
		t.Errorf("Ready = %v, want what is lacking", err)
	}
	s.Lack()
	s.Watch(func() error { return old })
	if err := s.Ready(); err != nil {
		t.Errorf("nothing is lacking any more, Ready = %v", err)
	}
	if err := s.Alive(); !errors.Is(err, old) {
		t.Errorf("Alive = %v, want %v", err, old)
	}
}
