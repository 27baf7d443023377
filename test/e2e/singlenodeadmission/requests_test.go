//go:build unix

package singlenodeadmission

import (
	"context"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// The policies.
const (
	namespacePolicy = "csi-reclaimer-single-node-namespace"
	valuePolicy     = "csi-reclaimer-single-node-value"
	gateRequired    = podsafety.GateRequiredName
	gateStays       = podsafety.GateStaysName
	lockStays       = podsafety.LockStaysName
)

// request is one row of the table. It changes nothing.
type request struct {
	// policy is the row's policy.
	policy string
	// as is the sender. Default: an administrator.
	as   string
	send func(ctx context.Context, as user, p *prepared) error
	// refused means that the policy refuses it with these words. Otherwise no policy refuses it.
	refused bool
	says    []string
	// alone means that the row tests the policy without the other installed objects.
	alone bool
}

func requests() map[string]request {
	all := map[string]request{}
	for policy, rows := range map[string]map[string]request{
		namespacePolicy: namespaceRows(), valuePolicy: valueRows(), gateRequired: newPodRows(), gateStays: gateRows(),
		lockStays: lockRows(),
	} {
		for sentence, r := range rows {
			r.policy = policy
			if r.as == "" {
				r.as = admin
			}
			all[policy+": "+sentence] = r
		}
	}
	return all
}

// refusedRows returns rows that are refused with these words.
func refusedRows(says []string, rows map[string]request) map[string]request {
	for sentence, r := range rows {
		r.refused, r.says = true, append(r.says, says...)
		rows[sentence] = r
	}
	return rows
}

func join(all ...map[string]request) map[string]request {
	rows := map[string]request{}
	for _, some := range all {
		maps.Copy(rows, some)
	}
	return rows
}

// creates is a new pod.
func creates(change ...func(*v1.Pod)) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.post(ctx, p.path("pods", ""), podOf(p.namespace, "new", change...))
	}
}

func generated(pod *v1.Pod) { pod.Name, pod.GenerateName = "", "generated-" }

func newPodRows() map[string]request {
	plain := with(v1.Volume{Name: "e"})
	return join(map[string]request{
		"a gate":                     {send: creates(gated(podsafety.Gate))},
		"a gate and another":         {send: creates(gated(other, podsafety.Gate))},
		"an ephemeral volume, gated": {send: creates(with(ephemeralVolume()), gated(podsafety.Gate))},
		"no volume, a node":          {send: creates(with(), onNode)},
		"other volumes, a node":      {send: creates(plain, onNode)},
		"a mirror pod":               {send: creates(mirror, onNode)},
	}, refusedRows([]string{"pod claims-", "csi-reclaimer.io/single-node"}, map[string]request{
		"a node":                      {send: creates(onNode), says: []string{"/new", "own-node", "spec.nodeSelector"}},
		"a node, as volume-guard":     {as: guard, send: creates(onNode)},
		"a node, named by the server": {send: creates(onNode, generated), says: []string{"/generated-"}},
		"a node, an ephemeral volume": {send: creates(with(ephemeralVolume()), onNode)},
		"a node, a claim of several":  {send: creates(with(v1.Volume{Name: "e"}, claimVolume("c")), onNode)},
		"no gate":                     {alone: true, send: creates(), says: []string{"apply single-node-gate.yaml"}},
		"another gate":                {alone: true, send: creates(gated(other)), says: []string{"/new"}},
		"an ephemeral volume, no gate": {alone: true, send: creates(with(ephemeralVolume())),
			says: []string{"apply single-node-gate.yaml"}},
	}))
}

// patches is a patch of a pod.
func patches(pod string, kind types.PatchType, body string, subresource ...string) func(context.Context, user,
	*prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.patch(ctx, kind, p.path("pods", strings.Join(append([]string{pod}, subresource...), "/")), body)
	}
}

// replaces is an update of a pod.
func replaces(pod string, change func(*v1.Pod), subresource ...string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		now := p.pods[pod].DeepCopy()
		now.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		now.ResourceVersion = ""
		change(now)
		return as.put(ctx, p.path("pods", strings.Join(append([]string{pod}, subresource...), "/")), now)
	}
}

func ungated(pod *v1.Pod) { pod.Spec.SchedulingGates = nil }

const (
	removesGate      = `{"spec":{"schedulingGates":[{"$patch":"delete","name":"csi-reclaimer.io/volume"}]}}`
	removesOtherGate = `{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/other"}]}}`
	replacesGates    = `{"spec":{"schedulingGates":[{"name":"example.com/other"}]}}`
	removesGates     = `{"spec":{"schedulingGates":null}}`
	testsAndRemoves  = `[{"op":"test","path":"/spec/schedulingGates/0/name","value":"csi-reclaimer.io/volume"},` +
		`{"op":"remove","path":"/spec/schedulingGates/0"}]`
	labels = `{"metadata":{"labels":{"a":"b"}}}`
)

func gateRows() map[string]request {
	const strategic, merge = types.StrategicMergePatchType, types.MergePatchType
	rows := join(map[string]request{
		"removed by volume-guard": {as: guard, send: patches(waits, strategic, removesGate)},
		"removed, confirmed":      {send: patches(confirmed, strategic, removesGate)},
		"replaced, confirmed":     {send: replaces(confirmed, ungated)},
		"another gate removed":    {send: patches(waits, strategic, removesOtherGate)},
		"all gates of another":    {send: patches(otherwise, merge, removesGates)},
		"a label of a gated pod":  {send: patches(waits, merge, labels)},
		"a label of another's":    {send: patches(otherwise, merge, labels)},
		"a label of one without":  {send: patches(ungatedName, merge, labels)},
		"confirmed":               {send: patches(waits, merge, `{"metadata":{"annotations":{"`+confirm+`":"x"}}}`)},
		"narrowed to nodes":       {send: patches(waits, merge, `{"spec":{"nodeSelector":{"a":"b"}}}`)},
		"evicted": {send: func(ctx context.Context, as user, p *prepared) error {
			return as.post(ctx, p.path("pods", waits+"/eviction"), map[string]any{"apiVersion": "policy/v1",
				"kind": "Eviction", "metadata": map[string]any{"name": waits},
				"deleteOptions": map[string]any{"dryRun": []string{metav1.DryRunAll}}})
		}},
	}, refusedRows([]string{"pod claims-", "kubectl reclaim explain pod/", "kubectl annotate pod --namespace claims-"},
		map[string]request{
			"removed":                         {send: patches(waits, strategic, removesGate), says: []string{"/waits"}},
			"the only one removed":            {send: patches(waitsToo, strategic, removesGate)},
			"the list replaced":               {send: patches(waits, merge, replacesGates)},
			"the list removed":                {send: patches(waitsToo, merge, removesGates)},
			"removed by a tested JSON patch":  {send: patches(waitsToo, types.JSONPatchType, testsAndRemoves)},
			"the pod replaced":                {send: replaces(waits, ungated)},
			"left out of an apply":            {send: applies},
			"removed, confirmed for another":  {send: patches(misnamed, strategic, removesGate)},
			"removed and confirmed at a time": {send: confirmsAndRemoves},
			"removed by a neighbor":           {as: neighbor, send: patches(waits, strategic, removesGate)},
			"removed by a namesake":           {as: namesake, send: patches(waits, strategic, removesGate)},
		}))
	// The API server changes no gate through a subresource: TestSubresourcesKeepGate.
	for _, subresource := range podSubresources() {
		rows["removed through "+subresource] = request{send: patches(waits, merge, replacesGates, subresource)}
		rows["replaced through "+subresource] = request{send: replaces(waits, ungated, subresource)}
	}
	return rows
}

// podSubresources returns the subresources that accept a pod.
func podSubresources() []string {
	if cluster.Version().Before(controlplane.V1_33) {
		return []string{"status", "ephemeralcontainers"}
	}
	return []string{"status", "ephemeralcontainers", "resize"}
}

// applies is an apply by the manager that the gate is from, without it.
func applies(ctx context.Context, as user, p *prepared) error {
	return as.patch(ctx, types.ApplyPatchType, p.path("pods", applied), fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"none"}],`+
			`"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}],"automountServiceAccountToken":false,`+
			`"tolerations":[{"operator":"Exists"}]}}`, applied))
}

func confirmsAndRemoves(ctx context.Context, as user, p *prepared) error {
	return as.patch(ctx, types.MergePatchType, p.path("pods", waitsToo), fmt.Sprintf(
		`{"metadata":{"annotations":{%q:%q}},"spec":{"schedulingGates":null}}`, confirm, p.pods[waitsToo].UID))
}
