package kubetest

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// diary is a handler that records its calls.
type diary struct{ lines []string }

func (d *diary) note(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Added(now string)                { d.note("added %s", now) }
func (d *diary) Updated(before, now string)      { d.note("updated %s to %s", before, now) }
func (d *diary) Deleted(last string, final bool) { d.note("deleted %s %v", last, final) }
func (d *diary) LeftOut(now string)              { d.note("left out %s", now) }
func (d *diary) LeftOutDeleted(string)           {}

func TestDeliver(t *testing.T) {
	pod := func(version, node string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: v1.PodSpec{NodeName: node}}
	}
	// It keeps pods with a node.
	record := func(o runtime.Object, _ bool) (string, bool, error) {
		pod, ok := o.(*v1.Pod)
		if !ok {
			return "", false, fmt.Errorf("got a %T", o)
		}
		return pod.Name + pod.ResourceVersion, pod.Spec.NodeName != "", nil
	}
	c := NewCache[string]()
	for _, step := range []struct {
		objects map[string]*v1.Pod
		want    []string
		kept    []string
	}{
		{map[string]*v1.Pod{"a": pod("1", "n"), "b": pod("2", "")}, []string{"added 1", "left out 2"}, []string{"1"}},
		{map[string]*v1.Pod{"a": pod("1", "n"), "b": pod("2", "")}, nil, []string{"1"}},
		{map[string]*v1.Pod{"a": pod("3", ""), "b": pod("4", "n")}, []string{"updated 1 to 3", "added 4"},
			[]string{"3", "4"}},
		{map[string]*v1.Pod{"b": pod("4", "n")}, []string{"deleted 3 true"}, []string{"4"}},
	} {
		d := &diary{}
		Deliver(t, c, step.objects, record, d)
		var kept []string
		c.Each(func(r string) { kept = append(kept, r) })
		if !slices.Equal(d.lines, step.want) || !slices.Equal(kept, step.kept) {
			t.Errorf("delivered %q, want %q; kept %q, want %q", d.lines, step.want, kept, step.kept)
		}
	}
	delete(c.Records, "b")
	d := &diary{}
	Deliver(t, c, map[string]*v1.Pod{"b": pod("4", "n")}, record, d)
	if _, found := c.Get("b"); found || len(d.lines) > 0 {
		t.Errorf("the watch does not lag: %q", d.lines)
	}
}
