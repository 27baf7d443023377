//go:build unix

package singlenodeadmission

import (
	"context"
	"fmt"
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
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
		"an ephemeral volume, gated": {send: creates(with(objects.EphemeralVolume("v", "none")), gated(podsafety.Gate))},
		"no volume, a node":          {send: creates(with(), onNode)},
		"other volumes, a node":      {send: creates(plain, onNode)},
		"a mirror pod":               {send: creates(mirror, onNode)},
	}, refusedRows([]string{"pod claims-", "csi-reclaimer.io/single-node"}, map[string]request{
		"a node":                      {send: creates(onNode), says: []string{"/new", "own-node", "spec.nodeSelector"}},
		"a node, as volume-guard":     {as: guard, send: creates(onNode)},
		"a node, named by the server": {send: creates(onNode, generated), says: []string{"/generated-"}},
		"a node, an ephemeral volume": {send: creates(with(objects.EphemeralVolume("v", "none")), onNode)},
		"a node, a claim of several":  {send: creates(with(v1.Volume{Name: "e"}, objects.ClaimVolume("v", "c")), onNode)},
		"no gate":                     {alone: true, send: creates(), says: []string{"apply single-node-gate.yaml"}},
		"another gate":                {alone: true, send: creates(gated(other)), says: []string{"/new"}},
		"an ephemeral volume, no gate": {alone: true, send: creates(with(objects.EphemeralVolume("v", "none"))),
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

// The rows about claims.

// claims is a new claim.
func claims(meta metav1.ObjectMeta) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.post(ctx, p.path("persistentvolumeclaims", ""), p.claim("new", meta))
	}
}

// ofClaim is a merge patch of a claim, or of its subresource.
func ofClaim(name, body string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.patch(ctx, types.MergePatchType, p.path("persistentvolumeclaims", name), body)
	}
}

// replacesClaim is an update of the claim that is locked.
func replacesClaim(change func(*v1.PersistentVolumeClaim)) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		now, err := as.CoreV1().PersistentVolumeClaims(p.namespace).Get(ctx, locked, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		now.ResourceVersion = ""
		change(now)
		return as.put(ctx, p.path("persistentvolumeclaims", locked), now)
	}
}

func lockRows() map[string]request {
	lock := func(value string) string { return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, usedBy, value) }
	finalizers := func(list string) string { return `{"metadata":{"finalizers":` + list + `}}` }
	const ours, others = `["` + lockFinalizer + `"]`, `["` + other + `"]`
	return join(map[string]request{
		"created":                    {send: claims(metav1.ObjectMeta{})},
		"created with the finalizer": {send: claims(metav1.ObjectMeta{Finalizers: []string{lockFinalizer}})},
		"created with another annotation": {
			send: claims(metav1.ObjectMeta{Annotations: map[string]string{other: "x"}})},
		"locked by volume-guard":                {as: guard, send: ofClaim(free, lock(`"uid web-0"`))},
		"freed by volume-guard":                 {as: guard, send: ofClaim(locked, lock("null"))},
		"without the finalizer by volume-guard": {as: guard, send: ofClaim(locked, finalizers(others))},
		"created with a lock, as from a backup": {
			send: claims(metav1.ObjectMeta{Annotations: map[string]string{usedBy: "uid web-0"}})},
		"with another annotation":     {send: ofClaim(locked, `{"metadata":{"annotations":{"a":"b"}}}`)},
		"with a label":                {send: ofClaim(locked, labels)},
		"without the other finalizer": {send: ofClaim(locked, finalizers(ours))},
		"with one more finalizer":     {send: ofClaim(locked, finalizers(`["a.b/c","`+other+`",`+ours[1:]))},
		"free, with the finalizer":    {send: ofClaim(free, finalizers(ours))},
		"free, with a label":          {send: ofClaim(free, labels)},
		"with a condition": {send: ofClaim(locked+"/status",
			`{"status":{"conditions":[{"type":"Resizing","status":"True"}]}}`)},
		"replaced with the lock unchanged": {send: replacesClaim(func(*v1.PersistentVolumeClaim) {})},
	}, refusedRows([]string{"claim claims-", "kubectl reclaim confirm pvc/"}, map[string]request{
		"locked": {send: ofClaim(free, lock(`"uid web-0"`)),
			says: []string{"pvc/free --namespace claims-"}},
		"locked by nothing":          {send: ofClaim(free, lock(`""`))},
		"with another lock":          {send: ofClaim(locked, lock(`"other web-1"`))},
		"with an empty lock":         {send: ofClaim(locked, lock(`""`))},
		"freed":                      {send: ofClaim(locked, lock("null"))},
		"freed with all annotations": {send: ofClaim(locked, `{"metadata":{"annotations":null}}`)},
		"freed through status":       {send: ofClaim(locked+"/status", lock("null"))},
		"freed by a neighbor":        {as: neighbor, send: ofClaim(locked, lock("null"))},
		"freed by a namesake":        {as: namesake, send: ofClaim(locked, lock("null"))},
		"without the finalizer":      {send: ofClaim(locked, finalizers(others))},
		"without finalizers":         {send: ofClaim(locked, finalizers("null"))},
		"without it through status":  {send: ofClaim(locked+"/status", finalizers(others))},
		"replaced without the lock": {
			send: replacesClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, usedBy) })},
		"replaced without the finalizer": {
			send: replacesClaim(func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{other} })},
	}))
}

// The rows about the label.

func namespaceWith(labels func(key string) map[string]string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.post(ctx, "/api/v1/namespaces", &v1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "new-one", Labels: labels(p.key)}})
	}
}

// asks is a new namespace with these values of the label and of pod safety, "" for none.
func asks(value, safety string) func(context.Context, user, *prepared) error {
	return namespaceWith(func(key string) map[string]string {
		labels := map[string]string{key: value}
		if safety != "" {
			labels[podSafety] = safety
		}
		return labels
	})
}

// relabels is a merge patch of the labels of a namespace, in which KEY is the label.
func relabels(of func(*prepared) string, body string, subresource ...string) func(context.Context, user,
	*prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		path := "/api/v1/namespaces/" + of(p)
		for _, s := range subresource {
			path += "/" + s
		}
		return as.patch(ctx, types.MergePatchType, path,
			fmt.Sprintf(`{"metadata":{"labels":%s}}`, replaceKey(body, p.key)))
	}
}

// finalizes is an update of the subresource finalize that also changes the label.
func finalizes(value string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		now, err := as.CoreV1().Namespaces().Get(ctx, p.both, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
		now.Labels[p.key] = value
		return as.put(ctx, "/api/v1/namespaces/"+p.both+"/finalize", now)
	}
}

func plainOf(p *prepared) string { return p.plain }
func bothOf(p *prepared) string  { return p.both }
func oldOf(p *prepared) string   { return p.old }

func namespaceRows() map[string]request {
	const safety = `"` + podSafety + `"`
	return join(map[string]request{
		"all":      {send: asks("all", enforce)},
		"selected": {send: asks("selected", enforce)},
		"neither":  {send: namespaceWith(func(string) map[string]string { return nil })},
		"pod safety alone": {
			send: namespaceWith(func(string) map[string]string { return map[string]string{podSafety: enforce} })},
		"both set":                 {send: relabels(plainOf, `{"KEY":"all",`+safety+`:"enforce"}`)},
		"another label":            {send: relabels(plainOf, `{"a":"b"}`)},
		"pod safety set":           {send: relabels(plainOf, `{`+safety+`:"enforce"}`)},
		"changed to selected":      {send: relabels(bothOf, `{"KEY":"selected"}`)},
		"both removed":             {send: relabels(bothOf, `{"KEY":null,`+safety+`:null}`)},
		"the label removed":        {send: relabels(bothOf, `{"KEY":null}`)},
		"another label of both":    {send: relabels(bothOf, `{"a":"b"}`)},
		"finalized":                {send: finalizes("all")},
		"an old one":               {alone: true, send: relabels(oldOf, `{"a":"b"}`)},
		"an old one is mended":     {alone: true, send: relabels(oldOf, `{"KEY":"all",`+safety+`:"enforce"}`)},
		"an old one without label": {alone: true, send: relabels(oldOf, `{"KEY":null}`)},
	}, refusedRows([]string{"namespace ", "Set both: kubectl label --overwrite namespace "}, map[string]request{
		"no pod safety": {send: asks("all", ""),
			says: []string{"namespace new-one", "single-node=all"}},
		"selected, no pod safety":             {send: asks("selected", ""), says: []string{"single-node", "=selected"}},
		"pod safety that warns":               {send: asks("all", "warn")},
		"the label set":                       {send: relabels(plainOf, `{"KEY":"all"}`)},
		"pod safety removed":                  {send: relabels(bothOf, `{`+safety+`:null}`)},
		"pod safety removed, as volume-guard": {as: guard, send: relabels(bothOf, `{`+safety+`:null}`)},
		"pod safety to warn":                  {send: relabels(bothOf, `{`+safety+`:"warn"}`)},
		"pod safety removed through status":   {send: relabels(bothOf, `{`+safety+`:null}`, "status")},
	}), refusedRows([]string{"Valid values are selected,", "and all,"}, map[string]request{
		"true":                       {send: asks("true", enforce), says: []string{`namespace new-one`, `cannot be "true"`}},
		"empty":                      {send: asks("", enforce)},
		"changed to none":            {send: relabels(bothOf, `{"KEY":"none"}`)},
		"changed through status":     {send: relabels(bothOf, `{"KEY":"none"}`, "status")},
		"changed through finalize":   {send: finalizes("none")},
		"an old one, another value":  {alone: true, send: relabels(oldOf, `{"KEY":"no"}`)},
		"an old one with pod safety": {alone: true, send: relabels(oldOf, `{`+safety+`:"enforce"}`)},
	}))
}

// selects is a new object with a value of the label.
func selects(kind, value string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		labels := map[string]string{p.key: value}
		switch kind {
		case "StorageClass":
			return as.post(ctx, "/apis/storage.k8s.io/v1/storageclasses", storageClass("new", labels))
		case "PersistentVolume":
			return as.post(ctx, "/api/v1/persistentvolumes", &v1.PersistentVolume{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: labels},
				Spec: v1.PersistentVolumeSpec{
					Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
					AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none"}},
				}})
		}
		return claims(metav1.ObjectMeta{Labels: labels})(ctx, as, p)
	}
}

// ofClass is a merge patch of the labels of an old class.
func ofClass(body string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return as.patch(ctx, types.MergePatchType, "/apis/storage.k8s.io/v1/storageclasses/"+p.class,
			fmt.Sprintf(`{"metadata":{"labels":%s}}`, replaceKey(body, p.key)))
	}
}

func valueRows() map[string]request {
	rows := map[string]request{
		"an old class":                {alone: true, send: ofClass(`{"a":"b"}`)},
		"an old class is mended":      {alone: true, send: ofClass(`{"KEY":"true"}`)},
		"an old class without":        {alone: true, send: ofClass(`{"KEY":null}`)},
		"a claim without":             {send: claims(metav1.ObjectMeta{})},
		"a claim with another label":  {send: ofClaim(free, labels)},
		"a claim with the label true": {send: ofClaimKey(free, `{"KEY":"true"}`)},
	}
	bad := map[string]request{
		"an old class, another value": {alone: true, send: ofClass(`{"KEY":"y"}`)},
		"a claim with another value": {send: ofClaimKey(free, `{"KEY":"all"}`),
			says: []string{"PersistentVolumeClaim free"}},
		"a claim that says it is not": {send: ofClaimKey(free, `{"KEY":"false"}`)},
		"a claim with an empty value": {send: ofClaimKey(free, `{"KEY":""}`)},
		"a claim, as volume-guard":    {as: guard, send: ofClaimKey(free, `{"KEY":"all"}`)},
		"a locked claim, a bad value": {send: ofClaimKey(locked, `{"KEY":"yes"}`)},
	}
	for _, kind := range []string{"PersistentVolumeClaim", "PersistentVolume", "StorageClass"} {
		rows["a new "+kind] = request{send: selects(kind, "true")}
		bad["a new "+kind+" with another value"] = request{send: selects(kind, "True"),
			says: []string{kind + " new", `cannot be "True"`}}
	}
	return join(rows, refusedRows([]string{"The only valid value is true"}, bad))
}

// ofClaimKey is a merge patch of the labels of a claim.
func ofClaimKey(name, body string) func(context.Context, user, *prepared) error {
	return func(ctx context.Context, as user, p *prepared) error {
		return ofClaim(name, fmt.Sprintf(`{"metadata":{"labels":%s}}`, replaceKey(body, p.key)))(ctx, as, p)
	}
}
