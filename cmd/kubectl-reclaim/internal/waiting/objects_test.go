package waiting

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestParseObjects(t *testing.T) {
	for args, want := range map[string][]object{
		"pv/a pvc/b po/c": {{kind: cli.KindPV, name: "a"}, {kind: cli.KindClaim, name: "b"},
			{kind: cli.KindPod, name: "c"}},
		"pv a b":                        {{kind: cli.KindPV, name: "a"}, {kind: cli.KindPV, name: "b"}},
		"PersistentVolumeClaims a":      {{kind: cli.KindClaim, name: "a"}},
		"a":                             {{name: "a"}},
		"a pv":                          {{name: "a"}, {name: "pv"}},
		"sts/db":                        {{kind: cli.KindSet, name: "db"}},
		"nodefence.csi-reclaimer.io/n1": {{kind: cli.KindNode, name: "n1"}},
	} {
		if all, err := parseObjects(strings.Fields(args)); err != nil || !reflect.DeepEqual(all, want) {
			t.Errorf("%s: %+v, %v, want %+v", args, all, err, want)
		}
	}
	for _, args := range []string{"pv/a b", "pv", "a/b/c", "secret/a"} {
		if all, err := parseObjects(strings.Fields(args)); err == nil {
			t.Errorf("%s: %+v", args, all)
		}
	}
}

// headlines returns the first line of each explanation.
func headlines(out string) (all []string) {
	for _, block := range strings.Split(out, "\n\n") {
		if first, _, _ := strings.Cut(block, "\n"); strings.HasSuffix(first, ".") && !strings.Contains(first, "  ") {
			all = append(all, first)
		}
	}
	return all
}

func TestExplainArguments(t *testing.T) {
	for args, want := range map[string][]string{
		"pv " + commandline.LongPVName:         {"PV " + commandline.LongPVName + " has been terminating for 3h"},
		"pv settled " + commandline.LongPVName: {"PV settled is bound", "PV " + commandline.LongPVName},
		commandline.LongPVName:                 {"PV " + commandline.LongPVName},
		"data-db-0":                            {"Claim shop/data-db-0", "PV " + commandline.LongPVName},
		"db-0":                                 {"Pod shop/db-0 has been terminating"},
		"nodefence/n1":                         {"Node n1"},
		"sts/db": {"StatefulSet shop/db has 1 replica, and 2 objects of it wait.", "Pod shop/db-0",
			"PV " + commandline.LongPVName},
		"--all": {"Pod shop/db-0", "PV " + commandline.LongPVName, "Claim shop/data is bound", "Claim shop/new"},
	} {
		t.Run(args, func(t *testing.T) {
			s := commandline.SomethingWaits(t)
			s.Add("statefulsets", &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "set"},
				Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), VolumeClaimTemplates: []v1.PersistentVolumeClaim{
					{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}}})
			out := must.Get(root.Against(t, s, &commandline.Typing{}, strings.Fields("explain "+args)...))(t)
			got := headlines(out)
			for _, want := range want {
				for len(got) > 0 && !strings.HasPrefix(got[0], want) {
					got = got[1:]
				}
				if len(got) == 0 {
					t.Fatalf("no explanation, or not in this order: %q, in\n%s", want, out)
				}
			}
		})
	}
}

func TestExplainNamesWithoutKind(t *testing.T) {
	s := commandline.SomethingWaits(t)
	s.Add("pods", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "p"}})
	_, err := root.Against(t, s, &commandline.Typing{}, "explain", "data")
	if text := cli.ErrorText(err); !strings.Contains(text, `"data" is the name of 2 objects`) ||
		!strings.Contains(text, "next: write pvc/data or pod/data") {
		t.Errorf("a claim and a pod: %s", text)
	}
	out, err := root.Against(t, s, &commandline.Typing{}, "explain", "nothing", "data-db-0")
	if text := cli.ErrorText(err); !strings.Contains(text, `there is no PV "nothing"`) ||
		!strings.Contains(text, "kubectl reclaim list -A") || !strings.Contains(out, "Claim shop/data-db-0") {
		t.Errorf("a name of nothing, and one of a claim: %s, %s", text, out)
	}
	s.Forbidden = []string{"persistentvolumes"}
	_, err = root.Against(t, s, &commandline.Typing{}, "explain", "nothing")
	if !strings.Contains(cli.ErrorText(err), "ask for the permission") {
		t.Errorf("PVs are forbidden: %v", err)
	}
	out, err = root.Against(t, s, &commandline.Typing{}, "explain", "db-0")
	if err != nil || !strings.Contains(out, "Pod shop/db-0") {
		t.Errorf("a pod, and PVs are forbidden: %v, %s", err, out)
	}
}

// A reboot ends a fence only if the node was read after the fence. Evidence counts only if it is newer than the pod.
func TestEvidenceIsReadAfterPodsAndFence(t *testing.T) {
	for object, first := range map[string]string{"node/n1": "GET /api/v1/pods",
		"pod/db-0": "GET /api/v1/namespaces/shop/pods/db-0"} {
		s := commandline.SomethingWaits(t)
		must.Get(root.Against(t, s, &commandline.Typing{}, "explain", object))(t)
		order := []string{first, "GET /apis/csi-reclaimer.io/v1alpha1/nodefences/n1", "GET /api/v1/nodes/n1",
			"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"}
		at := 0
		for _, request := range s.Requests() {
			if at < len(order) && request == order[at] {
				at++
			}
		}
		if at < len(order) {
			t.Errorf("%s: %s is missing, or too early, in %q", object, order[at], s.Requests())
		}
	}
}
