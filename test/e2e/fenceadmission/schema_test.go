//go:build unix

package fenceadmission

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	fencingclient "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// testCreate creates each object in a dry run. A complaint is part of the refusal; none means that it is accepted.
func testCreate(t *testing.T, resource schema.GroupVersionResource, cases map[string]struct {
	o         *unstructured.Unstructured
	complaint string
}) {
	t.Helper()
	admin := as(t, "").Resource(resource)
	for name, c := range cases {
		_, err := admin.Create(t.Context(), c.o, dryRun)
		switch {
		case c.complaint == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.complaint != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.complaint)):
			t.Errorf("%s: %v, want a complaint of %q", name, err, c.complaint)
		}
	}
}

func TestNodeFenceSchema(t *testing.T) {
	type row = struct {
		o         *unstructured.Unstructured
		complaint string
	}
	of := func(all ...fields) *unstructured.Unstructured { return fence("node", fields{"agents": agents(all...)}) }
	ofVolumes := func(all fields) *unstructured.Unstructured {
		a := networkFence()
		a["networkFence"] = with(a["networkFence"].(fields), all)
		return of(a)
	}
	timeout := func(d any) *unstructured.Unstructured { return of(with(job(), fields{"timeout": d})) }
	const (
		one       = "exactly one of the fields in [job remediation networkFence manual] must be set"
		volumes   = "covers must be Volumes with networkFence, and only then"
		untilHand = "covers must be UntilUnfenced with manual"
		last      = "agents that cover Volumes must come last"
		same      = "no two agents may have the same networkFence"
	)
	testCreate(t, fences, map[string]row{
		"a job":                     {of(job()), ""},
		"each kind of agent":        {of(job(), remediation(), manual(), networkFence()), ""},
		"a networkFence alone":      {of(networkFence()), ""},
		"a job that reboots":        {of(with(job(), fields{"covers": "Reboot"})), ""},
		"no agent":                  {of(), "should have at least 1 items"},
		"no agents":                 {fence("node", fields{"agents": nil}), "spec.agents: Required value"},
		"no reason":                 {fence("node", fields{"reason": nil}), "spec.reason: Required value"},
		"an empty reason":           {fence("node", fields{"reason": ""}), "spec.reason"},
		"no kind of agent":          {of(with(job(), fields{"job": nil})), one},
		"two kinds of agent":        {of(with(job(), fields{"manual": fields{}})), one},
		"no coverage":               {of(with(job(), fields{"covers": nil})), "covers: Required value"},
		"an unknown coverage":       {of(with(job(), fields{"covers": "Everything"})), "Unsupported value"},
		"a job that covers volumes": {of(with(job(), fields{"covers": "Volumes"})), volumes},
		"a networkFence of pods":    {of(with(networkFence(), fields{"covers": "UntilUnfenced"})), volumes},
		"a manual reboot":           {of(with(manual(), fields{"covers": "Reboot"})), untilHand},
		"instructions":              {of(with(manual(), fields{"manual": fields{"instructions": "pull the plug"}})), ""},
		"no instructions":           {of(with(manual(), fields{"manual": fields{"instructions": ""}})), "instructions"},
		"volumes first":             {of(networkFence(), job()), last},
		"volumes twice":             {of(networkFence(), with(networkFence(), fields{"name": "other"})), same},
		"volumes of two clusters":   {of(job(), clustered("a", "one"), clustered("b", "two")), ""},
		"volumes of one cluster":    {of(clustered("a", "one"), clustered("b", "one")), same},
		"volumes between":           {of(clustered("a", "one"), job(), clustered("b", "two")), last},
		"volumes first and last":    {of(networkFence(), job(), with(networkFence(), fields{"name": "other"})), last},
		"two agents of one name":    {of(job(), job()), "Duplicate value"},
		"the reserved name":         {of(with(job(), fields{"name": "confirmation"})), "reserved for the confirmation"},
		"a name with spaces":        {of(with(job(), fields{"name": "power off"})), "should match"},
		"all volumes":               {ofVolumes(fields{"volumes": "All"}), ""},
		"all, and attributes": {ofVolumes(fields{"volumes": "All", "volumeAttributes": fields{"a": "b"}}),
			"volumeAttributes must not be set with volumes All"},
		"other volumes":        {ofVolumes(fields{"volumes": "Some"}), "Unsupported value"},
		"no attributes":        {ofVolumes(fields{"volumeAttributes": fields{}}), "should have at least 1 properties"},
		"a key without a name": {ofVolumes(fields{"volumeAttributes": fields{"": "b"}}), "keys must have 1 to 128"},
		"a key that is long":   {ofVolumes(fields{"volumeAttributes": fields{strings.Repeat("a", 129): "b"}}), "keys must"},
		"a value that is long": {ofVolumes(fields{"volumeAttributes": fields{"a": strings.Repeat("b", 257)}}), "Too long"},
		"an attribute, in bounds": {ofVolumes(fields{"volumeAttributes": fields{strings.Repeat("a", 128): strings.Repeat("b",
			256)}}), ""},
		"a job without a template": {of(with(job(), fields{"job": fields{"namespace": "a"}})), "podTemplateName"},
		"a kind that is no template": {of(with(remediation(), fields{"remediation": fields{"apiVersion": "v1",
			"kind": "Pod", "namespace": "a", "name": "b"}})), "should match"},
		"an unknown end":           {fence("node", fields{"unfence": "Later"}), "Unsupported value"},
		"an end at once":           {fence("node", fields{"unfence": "Now"}), ""},
		"a short timeout":          {timeout("1s"), ""},
		"a long timeout":           {timeout("24h"), ""},
		"a shorter timeout":        {timeout("999ms"), "must be between 1s and 24h"},
		"a longer timeout":         {timeout("24h0m1s"), "must be between 1s and 24h"},
		"a negative timeout":       {timeout("-5m"), "must be between 1s and 24h"},
		"a timeout in days":        {timeout("1d"), "timeout"},
		"a timeout of words":       {timeout("soon"), "timeout"},
		"an empty timeout":         {timeout(""), "timeout"},
		"a timeout of 300":         {timeout(int64(300)), "must be of type string"},
		"a timeout of 1e300h":      {timeout("1" + strings.Repeat("0", 300) + "h"), "timeout"},
		"a name that is no node's": {fence("a/b", nil), "metadata.name"},
	})
}

func TestFencePolicySchema(t *testing.T) {
	type row = struct {
		o         *unstructured.Unstructured
		complaint string
	}
	of := func(spec fields) *unstructured.Unstructured {
		return object("FencePolicy", "policy", with(fields{"nodeSelector": fields{}, "agents": agents(job())}, spec))
	}
	selecting := func(operator string, values ...any) fields {
		selector := fields{"matchExpressions": []any{fields{"key": "a", "operator": operator, "values": values},
			fields{"key": "b", "operator": "DoesNotExist"}}}
		return fields{"nodeSelector": selector, "namespaceSelector": selector}
	}
	const number = "must be 1 or more, or 1% to 100%"
	testCreate(t, policies, map[string]row{
		"all nodes":           {of(nil), ""},
		"no selector":         {of(fields{"nodeSelector": nil}), "spec.nodeSelector: Required value"},
		"selectors":           {of(selecting("In", "a")), ""},
		"an unknown operator": {of(selecting("in", "a")), "operator must be In or NotIn"},
		"values for Exists":   {of(selecting("Exists", "a")), "operator must be In or NotIn"},
		"no values for In":    {of(selecting("In")), "operator must be In or NotIn"},
		"no agents":           {of(fields{"agents": nil}), "spec.agents: Required value"},
		"volumes first": {
			of(fields{"agents": agents(networkFence(), job())}), "agents that cover Volumes must come last"},
		"40 seconds":            {of(fields{"unreachableAfter": "40s"}), ""},
		"39 seconds":            {of(fields{"unreachableAfter": "39s"}), "must be 40s or more"},
		"no duration":           {of(fields{"unreachableAfter": "a while"}), "unreachableAfter"},
		"patience":              {of(fields{"budgetPatience": "10m"}), ""},
		"negative patience":     {of(fields{"budgetPatience": "-1s"}), "must not be negative"},
		"patience of words":     {of(fields{"budgetPatience": "some"}), "budgetPatience"},
		"a number of fences":    {of(fields{"maxFences": int64(3)}), ""},
		"a share of fences":     {of(fields{"maxFences": "10%"}), ""},
		"all":                   {of(fields{"maxFences": "100%"}), ""},
		"more than all":         {of(fields{"maxFences": "101%"}), number},
		"a share of nothing":    {of(fields{"maxFences": "0%"}), number},
		"no fences":             {of(fields{"maxFences": int64(0)}), number},
		"more than an int32":    {of(fields{"maxFences": int64(math.MaxInt32) + 1}), number},
		"a number as a string":  {of(fields{"maxFences": "3"}), number},
		"many":                  {of(fields{"maxFences": "many"}), number},
		"no fences of a zone":   {of(fields{"maxFencesPerZone": int64(0)}), "maxFencesPerZone"},
		"never halt":            {of(fields{"haltAbove": int64(100)}), ""},
		"always halt":           {of(fields{"haltAbove": int64(0)}), "haltAbove"},
		"more than all at once": {of(fields{"haltAbove": int64(101)}), "haltAbove"},
	})
}

func TestNodeFenceTemplateSchema(t *testing.T) {
	type row = struct {
		o         *unstructured.Unstructured
		complaint string
	}
	of := func(spec fields) *unstructured.Unstructured {
		return object("NodeFenceTemplate", "template",
			fields{"template": fields{"spec": with(fields{"reason": "unhealthy", "agents": agents(job())}, spec)}})
	}
	testCreate(t, templates, map[string]row{
		"a template":           {of(nil), ""},
		"undone once released": {of(fields{"unfence": "WhenReleased"}), ""},
		"a confirmation": {of(fields{"confirmation": "it is off",
			"confirmationUID": "of-a-fence"}), "a person confirms each fence"},
		"an end at once": {of(fields{"unfence": "Now"}), "must be WhenReturned or WhenReleased"},
		"abandoned":      {of(fields{"unfence": "Abandon"}), "must be WhenReturned or WhenReleased"},
		"no agents":      {of(fields{"agents": nil}), "agents: Required value"},
		"no spec": {object("NodeFenceTemplate", "template", fields{"template": fields{}}),
			"spec: Required value"},
	})
}

// A template may change its agents; only the NodeFences made from it may not.
func TestTemplatesChange(t *testing.T) {
	admin := as(t, "").Resource(templates)
	o := object("NodeFenceTemplate", "changes", fields{"template": fields{"spec": fields{"reason": "unhealthy",
		"agents": agents(job(), manual())}}})
	_, err := admin.Create(t.Context(), o, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, admin.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})) })
	_, err = admin.Patch(t.Context(), o.GetName(), types.MergePatchType,
		patch(fields{"template": fields{"spec": fields{"agents": agents(manual())}}}), metav1.PatchOptions{})
	must(t, err)
}

func patch(spec fields) []byte {
	data, err := json.Marshal(fields{"spec": spec})
	if err != nil {
		panic(err)
	}
	return data
}

// TestNodeFenceChanges expects the agents of a NodeFence to be immutable: the agent that began a fence also ends it.
func TestNodeFenceChanges(t *testing.T) {
	admin := as(t, "").Resource(fences)
	const fixed, ended = "spec.agents cannot be changed", "an ended fence cannot be resumed"
	for name, c := range map[string]struct {
		before, change fields
		complaint      string
	}{
		"another agent":  {fields{"agents": agents(job())}, fields{"agents": agents(manual())}, fixed},
		"one more agent": {fields{"agents": agents(job())}, fields{"agents": agents(job(), manual())}, fixed},
		"one less agent": {fields{"agents": agents(job(), manual())}, fields{"agents": agents(job())}, fixed},
		"another order":  {fields{"agents": agents(job(), manual())}, fields{"agents": agents(manual(), job())}, fixed},
		"another coverage": {fields{"agents": agents(job())},
			fields{"agents": agents(with(job(), fields{"covers": "Reboot"}))}, fixed},
		"the default of an agent": {fields{"agents": agents(job())},
			fields{"agents": agents(with(job(), fields{"timeout": "5m"}))}, ""},
		"the same time": {fields{"agents": agents(with(job(), fields{"timeout": "90s"}))},
			fields{"agents": agents(with(job(), fields{"timeout": "1m30s"}))}, ""},
		"another job": {fields{"agents": agents(job())}, fields{"agents": agents(with(job(), fields{
			"job": fields{"namespace": "node-fencing", "podTemplateName": "power-off", "undo": true}}))}, fixed},
		"other instructions": {fields{"agents": agents(manual())}, fields{"agents": agents(with(manual(), fields{
			"manual": fields{"instructions": "hurry"}}))}, fixed},
		"no agent": {nil, fields{"agents": agents()}, "should have at least 1 items"},
		"another timeout": {fields{"agents": agents(job())},
			fields{"agents": agents(with(job(), fields{"timeout": "6m"}))}, fixed},
		"another reason": {nil, fields{"reason": "another"}, ""},
		"a policy":       {nil, fields{"policyName": "other"}, "spec.policyName cannot be changed"},
		"no policy": {fields{"policyName": "one"}, fields{"policyName": nil},
			"spec.policyName cannot be changed"},
		"a confirmation":          {nil, fields{"confirmation": "it is off", "confirmationUID": "of-the-fence"}, ""},
		"a word about no fence":   {nil, fields{"confirmation": "it is off"}, "confirmationUID must be the UID"},
		"the control plane":       {nil, fields{"allowControlPlane": true}, ""},
		"undone once released":    {nil, fields{"unfence": "WhenReleased"}, ""},
		"undone once returned":    {fields{"unfence": "WhenReleased"}, fields{"unfence": "WhenReturned"}, ""},
		"ended":                   {nil, fields{"unfence": "Now"}, ""},
		"abandoned":               {nil, fields{"unfence": "Abandon"}, ""},
		"abandoned once ended":    {fields{"unfence": "Now"}, fields{"unfence": "Abandon"}, ""},
		"not ended after all":     {fields{"unfence": "Now"}, fields{"unfence": "WhenReturned"}, ended},
		"ended by default":        {fields{"unfence": "Now"}, fields{"unfence": nil}, ended},
		"ended once abandoned":    {fields{"unfence": "Abandon"}, fields{"unfence": "Now"}, ended},
		"not abandoned after all": {fields{"unfence": "Abandon"}, fields{"unfence": "WhenReleased"}, ended},
	} {
		t.Run(name, func(t *testing.T) {
			o := create(t, fence("changes-"+strings.ReplaceAll(strings.ToLower(name), " ", "-"), c.before))
			_, err := admin.Patch(t.Context(), o.GetName(), types.MergePatchType, patch(c.change), metav1.PatchOptions{})
			if c.complaint == "" && err != nil || c.complaint != "" && (!apierrors.IsInvalid(err) ||
				!strings.Contains(err.Error(), c.complaint)) {
				t.Errorf("%v, want a complaint of %q", err, c.complaint)
			}
		})
	}
}

// The API server sets the defaults, so decisions need not know them.
func TestDefaults(t *testing.T) {
	made, err := as(t, "").Resource(fences).Create(t.Context(), fence("defaults", nil), dryRun)
	must(t, err)
	chain := agents(with(job(), fields{"timeout": "5m", "job": fields{"namespace": "node-fencing",
		"podTemplateName": "power-off", "undo": false}}))
	want := fields{"reason": "a test", "unfence": "WhenReturned", "agents": chain}
	if !reflect.DeepEqual(made.Object["spec"], want) {
		t.Errorf("a NodeFence is %v, want %v", made.Object["spec"], want)
	}
	made, err = as(t, "").Resource(policies).Create(t.Context(),
		object("FencePolicy", "defaults", fields{"nodeSelector": fields{}, "agents": agents(job())}), dryRun)
	must(t, err)
	want = fields{"nodeSelector": fields{}, "agents": chain, "unreachableAfter": "5m", "maxFences": int64(1),
		"maxFencesPerZone": int64(1), "haltAbove": int64(40), "waitForTolerations": true}
	if !reflect.DeepEqual(made.Object["spec"], want) {
		t.Errorf("a FencePolicy is %v, want %v", made.Object["spec"], want)
	}
}

// TestStatusIsASubresource shows that permission to write NodeFences does not include permission to write a proof.
func TestStatusIsASubresource(t *testing.T) {
	o := fence("status", nil)
	o.Object["status"] = fields{"phase": "Fenced"}
	made := create(t, o)
	if _, there := made.Object["status"]; there {
		t.Errorf("the status %v was created with the spec", made.Object["status"])
	}
	admin := as(t, "").Resource(fences)
	body := []byte(`{"status":{"phase":"Fenced"}}`)
	changed, err := admin.Patch(t.Context(), "status", types.MergePatchType, body, metav1.PatchOptions{})
	must(t, err)
	if _, there := changed.Object["status"]; there {
		t.Errorf("the status %v was written with the spec", changed.Object["status"])
	}
	changed, err = admin.Patch(t.Context(), "status", types.MergePatchType, body, metav1.PatchOptions{}, "status")
	must(t, err)
	if phase, _, _ := unstructured.NestedString(changed.Object, "status", "phase"); phase != "Fenced" {
		t.Errorf("the status is %v", changed.Object["status"])
	}
}

// An accepted object that the typed client cannot decode would fail each list of its kind.
func TestTypedClientReadsAcceptedObjects(t *testing.T) {
	// A client omits empty fields, which is no change.
	noUndo := with(job(), fields{"timeout": "300s", "job": fields{"namespace": "node-fencing",
		"podTemplateName": "power-off", "undo": false}})
	create(t, fence("typed", fields{"agents": agents(noUndo, remediation(), manual(), networkFence())}))
	typed, err := fencingclient.New(cluster.Admin())
	must(t, err)
	o, err := typed.Fences.Get(t.Context(), "typed", metav1.GetOptions{})
	must(t, err)
	if len(o.Spec.Agents) != 4 || o.Spec.Agents[0].Timeout.Minutes() != 5 {
		t.Errorf("read %+v", o.Spec)
	}
	o.Spec.Reason = "another"
	if o, err = typed.Fences.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil || o.Spec.Reason != "another" {
		t.Errorf("updated %+v: %v", o, err)
	}
}

// TestColumns checks the columns of kubectl get.
func TestColumns(t *testing.T) {
	create(t, fence("columns", nil))
	for path, want := range map[string]string{
		"nodefences":         "Name Phase Agent Covers Reason Age",
		"fencepolicies":      "Name After DryRun Active Fences Age",
		"nodefencetemplates": "Name Age",
	} {
		var table metav1.Table
		data, err := client.RESTClient().Get().AbsPath("/apis/csi-reclaimer.io/v1alpha1/"+path).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
		must(t, err)
		must(t, json.Unmarshal(data, &table))
		var names []string
		for _, column := range table.ColumnDefinitions {
			names = append(names, column.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has columns %q, want %q", path, got, want)
		}
	}
}
