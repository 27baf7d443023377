//go:build unix

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// allRight is how every scene should end.
func allRight() []result {
	var results []result
	for _, sc := range scenes() {
		results = append(results, result{scene: sc, seen: sc.want})
	}
	return results
}

func TestJudge(t *testing.T) {
	if err := judge(allRight()); err != nil {
		t.Errorf("all as wanted: %v", err)
	}
	spoil := map[string]func(*outcome){
		"the volume is left where it should go, or gone where it should stay": func(o *outcome) { o.onDisk = !o.onDisk },
		"one call too many": func(o *outcome) { o.deleteCalls++ },
		"the PV is stuck":   func(o *outcome) { o.pv = "Released, finalizer" },
	}
	for name, change := range spoil {
		for i, sc := range scenes() {
			t.Run(name+": "+sc.title, func(t *testing.T) {
				results := allRight()
				change(&results[i].seen)
				err := judge(results)
				if !errors.Is(err, errWrong) || !strings.Contains(err.Error(), sc.title) {
					t.Errorf("judge = %v, want errWrong with the scene's title", err)
				}
				var out bytes.Buffer
				newPrinter(&out, false).table(results)
				if strings.Count(out.String(), "WRONG") != 1 {
					t.Errorf("the table shows not one WRONG:\n%s", out.String())
				}
			})
		}
	}
}

func TestPrinting(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		p := newPrinter(&out, color)
		p.head("head")
		line := p.timeline()
		line.disk(1)
		line.driver(line.start, "received DeleteVolume")
		line.print()
		p.table(allRight())
		if got := strings.Contains(out.String(), "\x1b["); got != color {
			t.Errorf("colour codes with color = %v: %v", color, got)
		}
		for _, want := range []string{"1 volume\n", "received DeleteVolume", "right", "leaked"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
	}
}

func TestATimelineIsInTheOrderOfItsTimes(t *testing.T) {
	var out bytes.Buffer
	line := newPrinter(&out, false).timeline()
	line.driver(line.start.Add(2*time.Second), "second")
	line.driver(line.start.Add(time.Second), "first")
	line.print()
	if want := "     1000 ms  driver  first\n     2000 ms  driver  second\n"; out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

func TestReached(t *testing.T) {
	now := metav1.Now()
	bound := &v1.PersistentVolume{Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
	held := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Finalizers: []string{reclaim.Finalizer}, DeletionTimestamp: &now},
		Status:     v1.PersistentVolumeStatus{Phase: v1.VolumeReleased},
	}
	cases := []struct {
		pv    *v1.PersistentVolume
		state string
		want  bool
	}{
		{nil, gone, true}, {nil, "released", true}, {nil, "Released", false}, {nil, "protected", false},
		{bound, gone, false}, {bound, "protected", false}, {bound, "terminating", false}, {bound, "released", false},
		{held, "protected", true}, {held, "terminating", true}, {held, "released", true}, {held, gone, false},
	}
	for _, c := range cases {
		if got := reached(c.pv, c.state); got != c.want {
			t.Errorf("reached(%v, %q) = %v", c.pv, c.state, got)
		}
	}
}
