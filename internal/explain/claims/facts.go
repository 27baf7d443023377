package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Set holds the fields of a StatefulSet that explanations need.
type Set struct {
	statefulset.Set
	// Labels are the labels that the StatefulSet controller gives to the claims that it creates.
	Labels map[string]string
	// Scaled is the time of the last write to spec.replicas, zero if it is unknown.
	Scaled time.Time
}

// SetOf converts a StatefulSet into a value that keeps no reference to o.
func SetOf(o *appsv1.StatefulSet) Set {
	s := Set{Set: statefulset.SetOf(o)}
	if o.Spec.Selector != nil {
		s.Labels = maps.Clone(o.Spec.Selector.MatchLabels)
	}
	for _, entry := range o.ManagedFields {
		if entry.Time != nil && entry.Time.After(s.Scaled) && objects.HasField(entry.FieldsV1, "f:spec", "f:replicas") {
			s.Scaled = entry.Time.Time
		}
	}
	return s
}

// Claim holds the fields of a claim that explanations need.
type Claim struct {
	statefulset.Claim
	// Size is the capacity of a bound claim, and the requested size of any other.
	Size    resource.Quantity
	Class   string
	Labels  map[string]string
	Created time.Time
	// UnusedSince is the time since which no pod uses the claim, from its condition Unused. It is zero if the claim lacks
	// the condition.
	UnusedSince time.Time
}

// ClaimOf converts a claim into a value that keeps no reference to o.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{
		Claim: statefulset.ClaimOf(o), Size: o.Spec.Resources.Requests[v1.ResourceStorage], Labels: maps.Clone(o.Labels),
		Created: o.CreationTimestamp.Time, Class: objects.ClaimClass(o),
	}
	if size, bound := o.Status.Capacity[v1.ResourceStorage]; bound {
		c.Size = size
	}
	for _, condition := range o.Status.Conditions {
		if condition.Type == v1.PersistentVolumeClaimUnused && condition.Status == v1.ConditionTrue {
			c.UnusedSince = condition.LastTransitionTime.Time
		}
	}
	return c
}

// Facts holds the results of all reads about the claims of one or all namespaces. The zero value of each field is
// unknown.
type Facts struct {
	// ClusterFacts holds the facts about the volumes, and volume-guard's Leases.
	volumes.ClusterFacts
	Sets    explain.Read[[]Set]
	Claims  explain.Read[[]Claim]
	Pods    explain.Read[[]statefulset.Pod]
	Classes explain.Read[map[string]*storagev1.StorageClass]
}

type key struct{ namespace, name string }

type index struct {
	facts Facts
	// given holds the sets by the base of their templates' claim names; named holds them by their own names.
	given map[key][]Set
	named map[key]Set
	pods  map[key]statefulset.Pod
	// users holds the names of the pods that use a claim.
	users map[key][]string
	// preferred is the set to judge if several sets give a claim its name; empty means any.
	preferred types.UID
}

func (f Facts) index() *index {
	f.ClusterFacts = f.Indexed()
	i := &index{facts: f, given: map[key][]Set{}, named: map[key]Set{},
		pods: map[key]statefulset.Pod{}, users: map[key][]string{}}
	for _, s := range f.Sets.Value {
		i.named[key{s.Namespace, s.Name}] = s
		for _, template := range s.Templates {
			base := key{s.Namespace, s.ClaimBase(template)}
			i.given[base] = append(i.given[base], s)
		}
	}
	for _, pod := range f.Pods.Value {
		i.pods[key{pod.Namespace, pod.Name}] = pod
		for _, claim := range pod.Claims {
			at := key{pod.Namespace, claim}
			i.users[at] = append(i.users[at], pod.Name)
		}
	}
	return i
}

// of returns the engine's facts about a claim, and the set whose template or mark names it.
func (i *index) of(c Claim) (f statefulset.Facts, set Set) {
	f.Claim = c.Claim
	base, ordinal, numbered := statefulset.SplitClaimName(c.Name)
	f.Ordinal = ordinal
	if !i.facts.Sets.OK() {
		return f, set
	}
	set, found := i.named[key{c.Namespace, c.Mark.Set}]
	if giving := i.given[key{c.Namespace, base}]; numbered && len(giving) > 0 {
		set, found, f.Shared = giving[0], true, len(giving) > 1
		if at := slices.IndexFunc(giving, func(s Set) bool { return s.UID == i.preferred }); at > 0 {
			set = giving[at]
		}
	}
	f.SetSeen, f.SetName = statefulset.Absent, c.Mark.Set
	if found {
		f.SetSeen, f.SetName, f.Set = statefulset.Found, set.Name, set.Set
	}
	if !i.facts.Pods.OK() {
		return f, set
	}
	name := statefulset.Set{Name: f.SetName}.PodName(ordinal)
	f.PodSeen = statefulset.Absent
	if pod, found := i.pods[key{c.Namespace, name}]; found {
		f.PodSeen, f.Pod = statefulset.Found, pod
	}
	for _, user := range i.users[key{c.Namespace, c.Name}] {
		if user != name {
			f.OtherPod = user
		}
	}
	return f, set
}

// template returns the name of the template that gives the claim its name.
func template(s statefulset.Set, c Claim, ordinal int) string {
	for _, template := range s.Templates {
		if s.ClaimName(template, ordinal) == c.Name {
			return template
		}
	}
	return ""
}

// storage returns the reclaim policy of the claim's PV, and the provisioner of its volume. Each is empty if it is
// unknown.
func (i *index) storage(c Claim) (policy, driver string) {
	if pv, known := i.facts.FindPV(c.Volume); known {
		return pv.PolicyName(), pv.Owner()
	} else if class := i.facts.Classes.Value[c.Class]; class != nil {
		return "", class.Provisioner
	}
	return "", ""
}

func (f Facts) unread() []string {
	var s explain.Explanation
	explain.NoteUnread(&s, f.Sets, "StatefulSets", "which sets the claims belong to")
	explain.NoteUnread(&s, f.Claims, "Claims", "which there are")
	explain.NoteUnread(&s, f.Pods, "Pods", "which claims have a pod")
	explain.NoteUnread(&s, f.PVs, "PVs", "whether the volumes are deleted")
	explain.NoteUnread(&s, f.Classes, "StorageClasses", "who provisions claims without a volume")
	explain.NoteUnread(&s, f.Leases, "Leases", "whether volume-guard runs, and whether a brake is on (it counts as off)")
	explain.NoteUnread(&s, f.Installed, "CSIDrivers", "whether a driver is installed")
	explain.NoteUnread(&s, f.OnNodes, "CSINodes", "whether a node runs a driver")
	return s.Unread
}

// fullName formats the name of a namespaced object for people.
func fullName(namespace, name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }

// ReadPreview reads the facts for a preview of a StatefulSet. It returns an error if the set, or the claims or pods of
// its namespace, cannot be read; all other failed reads are part of the facts.
func ReadPreview(ctx context.Context, c explain.Cluster, namespace, name string) (PreviewFacts, error) {
	set, err := c.Apps.StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PreviewFacts{}, fmt.Errorf("read StatefulSet %q: %w", namespace+"/"+name, err)
	}
	f := PreviewFacts{Set: SetOf(set)}
	f.Facts = readObjects(ctx, c, namespace)
	for what, err := range map[string]error{"claims": f.Claims.Err, "pods": f.Pods.Err} {
		if err != nil {
			return PreviewFacts{}, fmt.Errorf("list %s of namespace %q: %w", what, namespace, err)
		}
	}
	f.Claims.Value = slices.DeleteFunc(f.Claims.Value, func(c Claim) bool { return !f.HasClaim(c.Name) })
	f.readVolumes(ctx, c)
	return f, nil
}

// ReadRetained reads the facts about retained claims of a namespace, or of all namespaces if namespace is empty. It
// returns an error if StatefulSets, claims or pods cannot be read, because a claim in use may look retained without
// them.
func ReadRetained(ctx context.Context, c explain.Cluster, namespace string) (Facts, error) {
	f := readObjects(ctx, c, namespace)
	for what, err := range map[string]error{"StatefulSets": f.Sets.Err, "claims": f.Claims.Err, "pods": f.Pods.Err} {
		if err != nil {
			return Facts{}, fmt.Errorf("list %s: %w", what, err)
		}
	}
	by := f.index()
	f.Claims.Value = slices.DeleteFunc(f.Claims.Value, func(c Claim) bool {
		_, is := by.retained(c)
		return !is
	})
	f.readVolumes(ctx, c)
	return f, nil
}

// ReadClaim reads the facts about a claim, its set and its PV. Sets and pods are only read for a claim with a mark, or
// with a name that ends with an ordinal. It returns an error if the claim does not exist or cannot be read.
func ReadClaim(ctx context.Context, c explain.Cluster, namespace, name string) (ClaimFacts, error) {
	its, err := volumes.ReadClaim(ctx, c, namespace, name)
	if err != nil {
		return ClaimFacts{}, err
	}
	f := ClaimFacts{ClaimFacts: its}
	if _, _, numbered := statefulset.SplitClaimName(name); numbered || statefulset.ClaimOf(its.Claim).Marked {
		f.Pods = readPods(ctx, c, namespace)
		f.Sets = readSets(ctx, c, namespace)
	}
	return f, nil
}

// readObjects reads the objects of a namespace live: the claims first, then the pods, then the sets, as before a
// deletion.
func readObjects(ctx context.Context, c explain.Cluster, namespace string) (f Facts) {
	f.Claims = explain.ReadOf(kube.ListAll(ctx, c.Core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{},
		ClaimOf))
	f.Pods = readPods(ctx, c, namespace)
	f.Sets = readSets(ctx, c, namespace)
	return f
}

func readPods(ctx context.Context, c explain.Cluster, namespace string) explain.Read[[]statefulset.Pod] {
	return explain.ReadOf(kube.ListAll(ctx, c.Core.Pods(namespace).List, metav1.ListOptions{}, statefulset.PodOf))
}

func readSets(ctx context.Context, c explain.Cluster, namespace string) explain.Read[[]Set] {
	return explain.ReadOf(kube.ListAll(ctx, c.Apps.StatefulSets(namespace).List, metav1.ListOptions{}, SetOf))
}

// readVolumes reads the facts that decide the outcome of the claims' volumes.
func (f *Facts) readVolumes(ctx context.Context, c explain.Cluster) {
	var pvs []string
	unbound := false
	for _, claim := range f.Claims.Value {
		pvs = append(pvs, claim.Volume)
		unbound = unbound || claim.Volume == "" && claim.Class != ""
	}
	f.ClusterFacts = volumes.ReadVolumes(ctx, c, pvs)
	if unbound {
		f.Classes = explain.ByName(c.Classes(ctx))
	}
}
