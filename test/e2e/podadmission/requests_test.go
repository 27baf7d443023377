//go:build unix

package podadmission

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// The policies that judge requests about pods.
const (
	forceDelete = "csi-reclaimer-pod-force-delete"
	forceEvict  = "csi-reclaimer-pod-force-evict"
	podStatus   = "csi-reclaimer-pod-status"
	holdStays   = "csi-reclaimer-pod-hold-stays"
)

// request is one row of the table: a pod that is Running on its node, and a request.
type request struct {
	// policy is the row's policy.
	policy string
	// as is the sender. Default: an administrator.
	as string
	// pod changes the pod before it is created; confirmed annotates it with its UID.
	pod       func(*v1.Pod)
	confirmed bool
	// before are actions on the pod before the request, with no policy in force.
	before []action
	send   action
	// refused means that the policy refuses it. Otherwise no policy refuses it or warns.
	refused bool
}

// action is a request about a pod. It may fail.
type action func(ctx context.Context, as *user, pod *v1.Pod) error

func deletes(options metav1.DeleteOptions) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		options := options
		options.DryRun = as.dryRun
		return as.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	}
}

func withGrace(seconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: ptr.To(seconds)}
}

// deletesAll is a collection that has the pod alone.
func deletesAll(options metav1.DeleteOptions) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		options := options
		options.DryRun = as.dryRun
		return as.CoreV1().Pods(pod.Namespace).DeleteCollection(ctx, options,
			metav1.ListOptions{LabelSelector: "pod=" + pod.Name})
	}
}

func evicts(options *metav1.DeleteOptions) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		options := options.DeepCopy()
		if as.dryRun != nil {
			options = cmp.Or(options, &metav1.DeleteOptions{})
			options.DryRun = as.dryRun
		}
		return as.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
		})
	}
}

func patches(patch string, subresources ...string) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		_, err := as.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: as.dryRun}, subresources...)
		return err
	}
}

func merges(patch string, subresources ...string) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		_, err := as.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: as.dryRun}, subresources...)
		return err
	}
}

func setsPhase(phase v1.PodPhase) action {
	return patches(fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
}

// ready sets a condition as a kubelet does of a pod that has ended.
func ready(condition string) action {
	return patches(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"False","reason":"PodCompleted"}]}}`, condition),
		"status")
}

// containersReady sets a field of the condition ContainersReady.
func containersReady(field string) action {
	return patches(`{"status":{"conditions":[{"type":"ContainersReady",`+field+`}]}}`, "status")
}

// setsContainers sets the status of a container of a kind.
func setsContainers(kind string) action {
	return patches(fmt.Sprintf(`{"status":{%q:[{"name":"c","image":"none","imageID":"","ready":false,"restartCount":0,`+
		`"state":{"terminated":{"exitCode":0}}}]}}`, kind), "status")
}

// manages has an entry of managedFields say that this manager, "Operation/subresource", wrote a field of the status.
func manages(manager, how, field string) action {
	operation, subresource, _ := strings.Cut(how, "/")
	return merges(fmt.Sprintf(`{"metadata":{"managedFields":[{"manager":%q,"operation":%q,"subresource":%q,`+
		`"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{%q:{}}}}]}}`, manager, operation, subresource,
		field))
}

// managers returns requests that depend on the writer of the phase of a pod that others have set to Failed.
func managers() map[string]request {
	forge := manages("kubelet", "Update/status", "f:phase")
	all := map[string]request{
		"have the kubelet have written the phase": {send: forge, refused: true},
		"have one on Windows have written the phase": {
			send: manages("kubelet.exe", "Update/status", "f:phase"), refused: true},
		"have it have written the phase, confirmed":       {confirmed: true, send: forge},
		"have it have written the phase, as volume-guard": {as: guard, send: forge},
		"have another manager have written the phase":     {send: manages("kubectl", "Update/status", "f:phase")},
		"have the kubelet have applied the phase":         {send: manages("kubelet", "Apply/status", "f:phase")},
		"have the kubelet have written another field":     {send: manages("kubelet", "Update/status", "f:reason")},
		"have the kubelet have written it with no status": {send: manages("kubelet", "Update/", "f:phase")},
		"have it have written the phase, once it was applied": {
			before: []action{manages("kubelet", "Apply/status", "f:phase")}, send: forge, refused: true},
		"label a pod whose phase the kubelet wrote": {before: []action{forge},
			send: merges(`{"metadata":{"labels":{"a":"b"}}}`)},
	}
	for sentence, r := range all {
		r.pod, r.before = held, append([]action{setsPhase(v1.PodFailed)}, r.before...)
		all[sentence] = r
	}
	return about(podStatus, all)
}

// dropsFinalizers replaces the pod by one without finalizers.
func dropsFinalizers(ctx context.Context, as *user, pod *v1.Pod) error {
	bare := pod.DeepCopy()
	bare.Finalizers = nil
	_, err := as.CoreV1().Pods(pod.Namespace).Update(ctx, bare, metav1.UpdateOptions{DryRun: as.dryRun})
	return err
}

func unbound(pod *v1.Pod) { pod.Spec.NodeName, pod.Spec.SchedulerName = "", "nobody" }

func bornWithoutGrace(pod *v1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) }

func held(pod *v1.Pod) {
	pod.Finalizers = []string{"example.com/other", podsafety.Finalizer}
	pod.Spec.Volumes = []v1.Volume{objects.ClaimVolume("v", "c")}
}

// terminating deletes a pod with its grace period.
var terminating = []action{deletes(metav1.DeleteOptions{})}

func annotated(value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Annotations = map[string]string{confirm: value} }
}

const (
	removesOurs  = `{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + podsafety.Finalizer + `"]}}`
	removesOther = `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/other"]}}`
	addsOurs     = `{"metadata":{"finalizers":["` + podsafety.Finalizer + `"]}}`
	replacesOurs = `{"metadata":{"finalizers":["example.com/other"]}}`
)

// requests is the table.
func requests() map[string]request {
	all := map[string]request{}
	for _, part := range []map[string]request{deletions(), evictions(), statuses(), managers(), finalizers()} {
		for sentence, r := range part {
			all[sentence] = r
		}
	}
	return all
}

func deletions() map[string]request {
	own := metav1.DeleteOptions{} // the pod's grace period
	unknown, forced := []action{setsPhase(v1.PodUnknown)}, []action{deletes(withGrace(0))}
	failed := []action{setsPhase(v1.PodFailed)}
	ended := append(slices.Clone(terminating), failed...)
	all := map[string]request{
		"delete with the pod's grace period":    {send: deletes(metav1.DeleteOptions{})},
		"delete with a grace period of 1":       {send: deletes(withGrace(1))},
		"delete with a grace period of 0":       {send: deletes(withGrace(0)), refused: true},
		"delete, confirmed":                     {send: deletes(withGrace(0)), confirmed: true},
		"delete, confirmed for another pod":     {pod: annotated("another"), send: deletes(withGrace(0)), refused: true},
		"delete, confirmed without a UID":       {pod: annotated(""), send: deletes(withGrace(0)), refused: true},
		"delete a pod that is not bound":        {pod: unbound, send: deletes(withGrace(0))},
		"delete all with their grace period":    {send: deletesAll(metav1.DeleteOptions{})},
		"delete all with a grace period of 0":   {send: deletesAll(withGrace(0)), refused: true},
		"delete all, confirmed":                 {send: deletesAll(withGrace(0)), confirmed: true},
		"delete a pod created without grace":    {pod: bornWithoutGrace, send: deletes(own), refused: true},
		"delete all of those created without":   {pod: bornWithoutGrace, send: deletesAll(own), refused: true},
		"delete one of those with grace":        {pod: bornWithoutGrace, send: deletes(withGrace(1))},
		"delete all of those with grace":        {pod: bornWithoutGrace, send: deletesAll(withGrace(1))},
		"delete a terminating pod, now with 0":  {before: terminating, send: deletes(withGrace(0)), refused: true},
		"delete a Succeeded pod":                {before: []action{setsPhase(v1.PodSucceeded)}, send: deletes(withGrace(0))},
		"delete a Failed pod":                   {before: failed, send: deletes(withGrace(0))},
		"delete a held pod that has ended":      {pod: held, before: failed, send: deletes(withGrace(0))},
		"delete it between end and unmount":     {pod: held, before: ended, send: deletes(withGrace(0)), refused: true},
		"delete it then, confirmed":             {pod: held, before: ended, send: deletes(withGrace(0)), confirmed: true},
		"delete it then, as its kubelet":        {pod: held, before: ended, as: ownKubelet, send: deletes(withGrace(0))},
		"delete it then, as the pod collector":  {pod: held, before: ended, as: podGC, send: deletes(withGrace(0))},
		"delete it then once more, with grace":  {pod: held, before: ended, send: deletes(metav1.DeleteOptions{})},
		"delete one then that is not held":      {before: ended, send: deletes(withGrace(0))},
		"delete a pod of an unknown phase":      {before: unknown, send: deletes(withGrace(0)), refused: true},
		"delete a force-deleted pod once more":  {pod: held, before: forced, send: deletes(withGrace(0))},
		"delete, as its kubelet":                {as: ownKubelet, send: deletes(withGrace(0))},
		"delete, as a node without its group":   {as: nodeNoGroup, send: deletes(withGrace(0)), refused: true},
		"delete, as another name of the group":  {as: groupOtherName, send: deletes(withGrace(0)), refused: true},
		"delete, as the pod garbage collector":  {as: podGC, send: deletes(withGrace(0))},
		"delete, as the controller manager":     {as: kcm, send: deletes(withGrace(0))},
		"delete, as volume-guard":               {as: guard, send: deletes(withGrace(0))},
		"delete, as a neighbor of volume-guard": {as: neighbor, send: deletes(withGrace(0)), refused: true},
		"delete, as a namesake of volume-guard": {as: namesake, send: deletes(withGrace(0)), refused: true},
	}
	return about(forceDelete, all)
}

func evictions() map[string]request {
	return about(forceEvict, map[string]request{
		"evict":                          {send: evicts(nil)},
		"evict with empty options":       {send: evicts(&metav1.DeleteOptions{})},
		"evict with a grace period of 1": {send: evicts(ptr.To(withGrace(1)))},
		"evict with a grace period of 0": {send: evicts(ptr.To(withGrace(0))), refused: true},
		"evict with 0, confirmed":        {confirmed: true, send: evicts(ptr.To(withGrace(0))), refused: true},
		"evict with 0, as volume-guard":  {as: guard, send: evicts(ptr.To(withGrace(0)))},
		"evict with 0, as its namesake":  {as: namesake, send: evicts(ptr.To(withGrace(0))), refused: true},
		"evict with 0, as a node":        {as: nodeNoGroup, send: evicts(ptr.To(withGrace(0))), refused: true},
	})
}

func statuses() map[string]request {
	failed, succeeded, running := setsPhase(v1.PodFailed), setsPhase(v1.PodSucceeded), setsPhase(v1.PodRunning)
	containers, inits := setsContainers("containerStatuses"), setsContainers("initContainerStatuses")
	unready := containersReady(`"status":"False"`)
	ephemerals, reason := setsContainers("ephemeralContainerStatuses"), merges(`{"status":{"reason":"a"}}`, "status")
	tainted := disrupts("DeletionByTaintManager")
	all := map[string]request{
		"set Failed":                             {send: failed, refused: true},
		"set Succeeded":                          {send: succeeded, refused: true},
		"set Failed, confirmed":                  {confirmed: true, send: failed},
		"set Failed, confirmed for another":      {pod: annotated("another"), send: failed, refused: true},
		"set another phase":                      {send: setsPhase(v1.PodPending)},
		"set Failed of a pod that is not bound":  {pod: unbound, send: failed},
		"set Failed of a pod that Succeeded":     {before: []action{succeeded}, send: failed, refused: true},
		"set Succeeded of a pod that Failed":     {before: []action{failed}, send: succeeded, refused: true},
		"set Running of a pod that Failed":       {before: []action{failed}, send: running, refused: true},
		"set Running of a pod that Succeeded":    {before: []action{succeeded}, send: running, refused: true},
		"set a condition of a pod that Failed":   {before: []action{failed}, send: ready("Ready")},
		"set containers of a held pod that runs": {pod: held, send: containers},
		"set containers once it was deleted":     {pod: held, before: terminating, send: containers, refused: true},
		"set init containers then":               {pod: held, before: terminating, send: inits, refused: true},
		"set ephemeral containers then":          {pod: held, before: terminating, send: ephemerals, refused: true},
		"set the reason of a held pod that runs": {pod: held, send: reason},
		"set the reason once it was deleted":     {pod: held, before: terminating, send: reason, refused: true},
		"set the reason once it Failed":          {pod: held, before: []action{failed}, send: reason, refused: true},
		"set the reason then, as its kubelet":    {pod: held, before: terminating, as: ownKubelet, send: reason},
		"have its kubelet have evicted it":       {send: disrupts("TerminationByKubelet"), refused: true},
		"have another program have evicted it":   {send: disrupts("EvictionByEvictionAPI")},
		"give another condition that reason": {send: patches(`{"status":{"conditions":[{"type":"a.b/c","status":"True",`+
			`"reason":"TerminationByKubelet"}]}}`, "status")},
		"taint-evict what its kubelet ended":      {pod: held, before: endedBy("Terminated", ""), send: tainted},
		"taint-evict what its kubelet evicted":    {pod: held, before: endedBy("Evicted", "a://b"), send: tainted},
		"taint-evict what never started then":     {pod: held, before: endedBy("Evicted", ""), send: tainted, refused: true},
		"set containers once it Failed":           {pod: held, before: []action{failed}, send: containers, refused: true},
		"set containers once it Succeeded":        {pod: held, before: []action{succeeded}, send: containers, refused: true},
		"set containers then, confirmed":          {pod: held, before: terminating, confirmed: true, send: containers},
		"set containers then, as its kubelet":     {pod: held, before: terminating, as: ownKubelet, send: containers},
		"set containers of a pod without hold":    {before: terminating, send: containers},
		"set ContainersReady":                     {send: ready("ContainersReady"), refused: true},
		"set ContainersReady, confirmed":          {confirmed: true, send: ready("ContainersReady")},
		"set ContainersReady, as its kubelet":     {as: ownKubelet, send: ready("ContainersReady")},
		"set the reason of ContainersReady":       {before: []action{unready}, send: ready("ContainersReady"), refused: true},
		"set the status of ContainersReady":       {before: []action{unready}, send: containersReady(`"status":"True"`)},
		"set Ready":                               {send: ready("Ready")},
		"set a condition":                         {send: patches(`{"status":{"conditions":[{"type":"a.b/c","status":"True"}]}}`, "status")},
		"set Failed, as its kubelet":              {as: ownKubelet, send: failed},
		"set Failed, as a node without its group": {as: nodeNoGroup, send: failed, refused: true},
		"set Failed, as another of the group":     {as: groupOtherName, send: failed, refused: true},
		"set Failed, as the pod collector":        {as: podGC, send: failed},
		"set Failed, as the controller manager":   {as: kcm, send: failed},
		"set Failed, as volume-guard":             {as: guard, send: failed},
		"set Failed, as its neighbor":             {as: neighbor, send: failed, refused: true},
	}
	if !cluster.Version().Before(controlplane.V1_34) {
		all["set the generation of ContainersReady"] = request{before: []action{unready},
			send: containersReady(`"observedGeneration":1`), refused: true}
	}
	return about(podStatus, all)
}

// disrupts sets the condition DisruptionTarget.
func disrupts(reason string) action {
	return patches(fmt.Sprintf(`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":%q}]}}`,
		reason), "status")
}

// endedBy makes a pod look as if its kubelet had ended it, with this reason and ID of its container.
func endedBy(reason, container string) []action {
	return []action{merges(fmt.Sprintf(`{"status":{"phase":"Failed","reason":%q,"containerStatuses":[{"name":"c",`+
		`"image":"i","imageID":"","ready":false,"restartCount":0,"containerID":%q}]}}`, reason, container), "status"),
		disrupts("TerminationByKubelet")}
}

func finalizers() map[string]request {
	free := func(*v1.Pod) {}
	heldForAnother := func(pod *v1.Pod) { held(pod); annotated("another")(pod) }
	all := map[string]request{
		"remove the finalizer":                   {send: patches(removesOurs), refused: true},
		"remove it by replacing the list":        {send: merges(replacesOurs), refused: true},
		"remove it by an update":                 {send: dropsFinalizers, refused: true},
		"remove it through the status":           {send: merges(replacesOurs, "status"), refused: true},
		"remove it, confirmed":                   {confirmed: true, send: patches(removesOurs)},
		"remove it, confirmed for another":       {pod: heldForAnother, send: patches(removesOurs), refused: true},
		"remove it from a terminating pod":       {before: terminating, send: patches(removesOurs), refused: true},
		"remove it, as volume-guard":             {as: guard, send: patches(removesOurs)},
		"remove it, as its namesake":             {as: namesake, send: patches(removesOurs), refused: true},
		"remove it through the status, kubelet":  {as: ownKubelet, send: merges(replacesOurs, "status"), refused: true},
		"remove another finalizer":               {send: patches(removesOther)},
		"label a held pod":                       {send: merges(`{"metadata":{"labels":{"a":"b"}}}`)},
		"set a condition of a held pod":          {send: patches(`{"status":{"conditions":[{"type":"a.b/c","status":"True"}]}}`, "status")},
		"label a pod that is not held":           {pod: free, send: merges(`{"metadata":{"labels":{"a":"b"}}}`)},
		"remove it through ephemeral containers": {send: leavesFinalizer(merges(replacesOurs, "ephemeralcontainers"))},
		"add the finalizer":                      {pod: free, send: patches(addsOurs)},
	}
	if !before133() {
		all["remove it through a resize"] = request{send: leavesFinalizer(merges(replacesOurs, "resize"))}
	}
	for sentence, r := range all {
		if r.pod == nil {
			r.pod = held
		}
		all[sentence] = r
	}
	return about(holdStays, all)
}

// leavesFinalizer is for a subresource through which the API server itself changes no finalizer: the write is admitted,
// and the pod keeps them.
func leavesFinalizer(a action) action {
	return func(ctx context.Context, as *user, pod *v1.Pod) error {
		if err := a(ctx, as, pod); err != nil {
			return err
		}
		now, err := as.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && len(now.Finalizers) != 2 {
			err = fmt.Errorf("finalizers %q", now.Finalizers)
		}
		return err
	}
}

func about(policy string, all map[string]request) map[string]request {
	for sentence, r := range all {
		r.policy = policy
		if r.as == "" {
			r.as = admin
		}
		all[sentence] = r
	}
	return all
}

// prepareAll creates the pods of the rows in a namespace of their own, in which no policy is in force.
func prepareAll(t *testing.T, rows map[string]request, all map[string]*user) (at string, pods map[string]*v1.Pod) {
	t.Helper()
	at, pods = namespace(t, ""), map[string]*v1.Pod{}
	t.Cleanup(func() { forget(t, at) })
	for i, sentence := range slices.Sorted(maps.Keys(rows)) {
		pods[sentence] = rows[sentence].prepare(t, at, fmt.Sprintf("pod-%d", i), all)
	}
	return at, pods
}

func (r request) prepare(t *testing.T, namespace, name string, all map[string]*user) *v1.Pod {
	t.Helper()
	ctx, pods := t.Context(), client.CoreV1().Pods(namespace)
	pod := podOf(namespace, name, ownNode)
	if r.pod != nil {
		r.pod(pod)
	}
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	if r.confirmed {
		value, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{confirm: string(pod.UID)}}})
		must(t, err)
		must(t, merges(string(value))(ctx, all[admin], pod))
	}
	if pod.Spec.NodeName != "" {
		must(t, setsPhase(v1.PodRunning)(ctx, all[admin], pod))
	}
	for _, do := range r.before {
		must(t, do(ctx, all[admin], pod))
	}
	pod, err = pods.Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	return pod
}
