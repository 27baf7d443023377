package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight/internal/chunks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Location is the place at which an entry is stored.
type Location struct {
	// Lease is the shard, and LeaseUID its UID.
	Lease    types.NamespacedName
	LeaseUID types.UID
	// Annotation is the key of the entry in the shard's annotations.
	Annotation string
	// Stored is the value of the annotation.
	Stored string
	// Driver is the CSI driver whose log it is.
	Driver string
}

// Settle returns the annotation of the Lease that settles the entry in its stored form. csi-reclaimer drops the entry
// before it calls the driver for it again, or when it takes the log over.
func (l Location) Settle() (annotation, value string) {
	return settleKey(l.Annotation), settleValue(l.Stored)
}

// Located is an entry with its location.
type Located struct {
	Entry
	Location
	// Node is the node whose log has the entry, and on which the volume is if it exists. It is nil for a log of all
	// nodes, and if the entry itself does not have the node's segments.
	Node *volume.Node
}

// Of reports whether the entry concerns the volume of the PV with this name, which is the volume's name or the result
// of volume.ApartName.
func (l Located) Of(pv string) bool { return pv == l.Volume || volumeOfPV(pv) == l.Volume }

// LocatedProblem is a problem of a driver's log. Driver is empty if the shard does not name it.
type LocatedProblem struct {
	Problem
	Driver string
}

// FillOf returns the used part of the fullest Lease of each driver's log, where 1 is full, by stored bytes alone. It
// leaves out Leases that cannot be read.
func FillOf(leases []coordinationv1.Lease) map[string]float64 {
	fill := map[string]float64{}
	for _, v := range joined(leases) {
		if v.err == nil {
			fill[v.meta.Driver] = max(fill[v.meta.Driver], float64(size(v.lease.Annotations))/float64(room))
		}
	}
	return fill
}

// OnNodes returns the drivers with a log of one node, which the Node owns.
func OnNodes(leases []coordinationv1.Lease) map[string]bool {
	drivers := map[string]bool{}
	for _, v := range joined(leases) {
		if v.err == nil && slices.ContainsFunc(v.lease.OwnerReferences, isNode) {
			drivers[v.meta.Driver] = true
		}
	}
	return drivers
}

const (
	// listPage is the page size of lists of Leases, each of which may have 1.5 MiB.
	listPage = 16
	// maxMeta is the size of the metadata that List keeps of a Lease without its content, in bytes.
	maxMeta = 1 << 10
	// maxListed bounds the annotations that List keeps, in bytes. A full log of one driver has 4 MiB.
	maxListed = 64 << 20
)

// List lists the Leases of the logs of all namespaces for Locate, with the fields that this package reads. Of the logs
// of drivers that asked does not name, nil for none, and of Leases without readable metadata, it keeps the metadata
// alone. Anyone who may create a Lease may give it the label and write the rest, so more than maxListed is an error.
func List(ctx context.Context, leases coordinationv1client.LeasesGetter, options metav1.ListOptions,
	asked func(driver string) bool) ([]coordinationv1.Lease, error) {
	options.LabelSelector, options.Limit = LabelLog+"=true", listPage
	var all []coordinationv1.Lease
	total, of := 0, map[string]int{}
	err := kube.Each(ctx, "the Leases of in-flight logs", options, leases.Leases(metav1.NamespaceAll).List,
		func(lease *coordinationv1.Lease) {
			less := reduced(lease, asked)
			total += size(less.Annotations)
			of[less.Namespace] += size(less.Annotations)
			if total <= maxListed {
				all = append(all, less)
			}
		})
	switch {
	case err != nil:
		return nil, err
	case total > maxListed:
		most := slices.MaxFunc(slices.Sorted(maps.Keys(of)), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
		return nil, fmt.Errorf("the Leases with the label %s have more than %d MiB, most of it in namespace %q; for "+
			"each Lease there, %s", LabelLog, maxListed>>20, most, IfForged)
	}
	return all, nil
}

// reduced returns the part of a Lease that List keeps. Locate and FindStrays have the same results with it.
func reduced(lease *coordinationv1.Lease, asked func(driver string) bool) coordinationv1.Lease {
	less := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name,
		UID: lease.UID}}
	v, about := look(lease, ""), lease.Annotations[annMeta]
	foreign := asked != nil && v.meta.Driver != "" && !asked(v.meta.Driver)
	unreadable := v.err != nil && v.meta == meta{}
	if foreign {
		about = v.meta.String() // without fields of others
	}
	switch {
	case !foreign && !unreadable:
		less.Annotations = lease.Annotations
		if slices.ContainsFunc(lease.OwnerReferences, isNode) {
			less.OwnerReferences = []metav1.OwnerReference{{Kind: nodeKind}}
		}
	case about != "" && len(about) <= maxMeta:
		less.Annotations = map[string]string{annMeta: about}
	}
	return less
}

const nodeKind = "Node"

func isNode(owner metav1.OwnerReference) bool { return owner.Kind == nodeKind }

// Locate decodes the Leases of one or several logs, as listed by LabelLog, for read-only programs. It returns the
// entries that are not settled, by shard and key, and the shards and entries that cannot be read. Both are limited to
// the drivers that asked names, nil for all, and to Leases that do not name their driver.
//
// Anyone who may create a Lease may have written them. So an entry has only the parts of its requests that programs
// show, and no topologies, because their chunks are not read. Only the entries of a node's log have the node's
// segments.
func Locate(leases []coordinationv1.Lease, asked func(driver string) bool) ([]Located, []LocatedProblem) {
	var located []Located
	var problems []LocatedProblem
	topologies := map[string]view{}
	for i := range leases {
		if number, _ := shardNumber(leases[i].Name); number == topologyNumber {
			topologies[leaseName(&leases[i])] = look(&leases[i], "")
		}
	}
	for _, v := range joined(leases) {
		lease := v.lease
		if asked != nil && v.meta.Driver != "" && !asked(v.meta.Driver) {
			continue
		}
		number, named := shardNumber(lease.Name)
		if v.err == nil && (!named || number >= v.meta.shards()) {
			v.err = fmt.Errorf("%w: its name has no number of a shard", ErrForeign)
		}
		if v.err != nil {
			problems = append(problems, LocatedProblem{
				Problem{Lease: leaseName(cmp.Or(v.blames, lease)), Err: v.err, shards: v.shards()}, v.meta.Driver})
			continue
		}
		add := func(key string, one coded) {
			if !v.settles(key) {
				of := v.leaseOf(key)
				located = append(located, Located{shown(one.entry), Location{
					Lease:    types.NamespacedName{Namespace: of.Namespace, Name: of.Name},
					LeaseUID: of.UID, Annotation: key, Stored: one.value, Driver: v.meta.Driver,
				}, v.nodeOf(one.entry)})
			}
		}
		topology, left := topologyOf(leaseName(lease)), maxContent
		for _, problem := range v.read(number, codec{chunks.WithoutUse(topology)}, topologies[topology], &left, add) {
			problems = append(problems, LocatedProblem{problem, v.meta.Driver})
		}
	}
	return located, problems
}

// shown returns an entry with the part of its requests that programs show.
func shown(e *Entry) Entry {
	less := *e
	less.Requests = slices.Clone(e.Requests)
	for i := range less.Requests {
		r := &less.Requests[i]
		r.Create = &csi.CreateVolumeRequest{Name: r.Create.GetName(), CapacityRange: r.Create.GetCapacityRange(),
			Parameters: r.Create.GetParameters(), VolumeContentSource: r.Create.GetVolumeContentSource()}
		r.PV = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: r.PV.Name},
			Spec: v1.PersistentVolumeSpec{StorageClassName: r.PV.Spec.StorageClassName}}
	}
	return less
}

// nodeOf returns the node of an entry in the log of one node. A node's request prefers the node's own segments.
func (v view) nodeOf(e *Entry) *volume.Node {
	if v.meta.shards() != 1 {
		return nil
	}
	var node *volume.Node
	for _, r := range e.Requests {
		preferred := r.Create.GetAccessibilityRequirements().GetPreferred()
		if r.Node == "" || len(preferred) == 0 {
			return nil
		}
		one := &volume.Node{Name: r.Node, Segments: preferred[0].GetSegments()}
		if node != nil && (node.Name != one.Name || !maps.Equal(node.Segments, one.Segments)) {
			return nil
		}
		node = one
	}
	return node
}

// Names reports whether a PV names the entry's volume: it has a name for which Of is true, and its affinity does not
// exclude the entry's node.
func (l Located) Names(pv volume.PV) bool { return l.Of(pv.Name) && !l.elsewhere(pv) }

// Apart reports whether a PV has a name for which Of is true, but names a volume on another node than the entry's.
func (l Located) Apart(pv volume.PV) bool { return l.Of(pv.Name) && l.elsewhere(pv) }

func (l Located) elsewhere(pv volume.PV) bool { return l.Node != nil && l.Node.Excludes(pv) }

// Belonging classifies the log of a Lease from the view of a process with its own log, where the zero value means
// unknown.
type Belonging string

const (
	// BelongsUnknown means that the Lease does not name the driver of its log.
	BelongsUnknown Belonging = ""
	// BelongsHere means that the Lease is a shard of the process' own log.
	BelongsHere Belonging = "Here"
	// BelongsToAnotherDriver means that the Lease is of another driver's log.
	BelongsToAnotherDriver Belonging = "AnotherDriver"
	// BelongsToAnotherNode means that the process has the log of one node, and the Lease is of another log of the driver,
	// which another process reads.
	BelongsToAnotherNode Belonging = "AnotherNode"
	// BelongsElsewhere means that the Lease is of the same driver, but of a log that the process does not read.
	BelongsElsewhere Belonging = "Elsewhere"
)

// belonging is a pure function that classifies the Lease of this driver and name.
func (c Config) belonging(driver string, lease types.NamespacedName) Belonging {
	number, named := strings.CutPrefix(strings.TrimSuffix(lease.Name, oldSuffix), c.Name+"-")
	named = named && len(number) == 1
	switch {
	case driver == "":
		return BelongsUnknown
	case driver != c.Driver:
		return BelongsToAnotherDriver
	case named && lease.Namespace == c.Namespace:
		return BelongsHere
	case !named && c.Shards == 1:
		return BelongsToAnotherNode
	}
	return BelongsElsewhere
}

// Stray is a Lease with entries of the same driver in a log that the process does not read.
type Stray struct {
	Lease types.NamespacedName
	// Entries counts the readable and unreadable entries that are not settled.
	Entries int
	// Err is set if the whole Lease cannot be read.
	Err error
}

// FindStrays lists the Leases of all namespaces and returns the ones that hold entries of this driver and belong
// elsewhere, and whose entries Stats then counts. In a log of one node it looks for that Lease's name only, because
// every node looks for its own. FindStrays never settles an entry that it finds.
func (l *Log) FindStrays(ctx context.Context) ([]Stray, error) {
	var options metav1.ListOptions
	if l.cfg.Shards == 1 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.cfg.shard(0)).String()
	}
	leases, err := List(ctx, l.cfg.Leases, options, func(driver string) bool { return driver == l.cfg.Driver })
	if err != nil {
		return nil, err
	}
	strays, entries := l.cfg.strays(leases), 0
	for _, stray := range strays {
		entries += stray.Entries
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.elsewhere = entries
	return strays, nil
}

// strays filters Leases, as listed by LabelLog, by entries of the driver that belong elsewhere.
func (c Config) strays(leases []coordinationv1.Lease) []Stray {
	var strays []Stray
	for _, v := range joined(leases) {
		lease := v.lease
		name := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
		entries := v.entries()
		maps.DeleteFunc(entries, func(key, _ string) bool { return v.settles(key) })
		n := len(entries)
		if (n > 0 || v.blames != nil) && c.belonging(v.meta.Driver, name) == BelongsElsewhere {
			strays = append(strays, Stray{Lease: name, Entries: n, Err: v.err})
		}
	}
	return strays
}

// Causes of a read-only shard or an unreadable entry. The Err of a [Problem] wraps one of them.
var (
	// ErrCopy means that the Lease is a copy of the object that the log was written to.
	ErrCopy = errors.New("a copy of another Lease (restored from a backup, or applied again): check it and delete it")
	// ErrForeign means that the Lease is no shard of this driver's log.
	ErrForeign = errors.New("not a Lease of this driver's in-flight log")
	// ErrVersion means that the writer used a format version that this program does not know.
	ErrVersion = errors.New("written by a version that is not known here")
	// ErrDecode means that the bytes of the entry cannot be decoded.
	ErrDecode = errors.New("the entry cannot be read")
	// ErrMisplaced means that the annotation or the Lease belongs to another volume.
	ErrMisplaced = errors.New("the entry is not where its volume's entry belongs")
	// ErrAppeared means that another program added the entry, or changed an unreadable one, while this process led; the
	// next process reads it.
	ErrAppeared = errors.New("another program added the entry; it is read after the next start")
)

// Ways out of a Lease that stops a release.
const (
	// ToSettle is for entries that can be read. Nothing finishes a forged one, and settle shows the claims first.
	ToSettle = "look for each in the storage system and settle it (kubectl reclaim settle), even if its Lease is forged"
	// IfForged is for a Lease that cannot be read, and that may not name its driver. The process of a log can run in
	// another namespace than its log, or outside of the cluster.
	IfForged = "it is forged, and can be deleted, if no csi-reclaimer ever had its log in the Lease's namespace: " +
		"--leader-election-namespace, by default the pod's namespace, outside of a pod \"default\""
)

// Problem is a shard or an entry that cannot be used, and that the log keeps unchanged.
type Problem struct {
	// Lease is the namespace and name of the shard.
	Lease string
	// Annotation is the key of the entry, empty if the whole shard is affected.
	Annotation string
	// Volume is the name of the volume, as far as the key contains it, and empty if unknown.
	Volume string
	// Err is the cause and wraps ErrCopy, ErrForeign, ErrVersion, ErrDecode, ErrMisplaced or ErrAppeared.
	Err error
	// shards is the number of shards of the log, 0 if the shard does not record it.
	shards int
}

// Of reports whether the unreadable content may concern the volume of the PV with this name, being either the volume's
// entry or its shard. A Lease whose name is not a shard's may concern any volume. The Lease of the chunks concerns
// none, because an entry that lacks a chunk is a problem of its own.
func (p Problem) Of(pv string) bool {
	if p.Annotation != "" {
		return p.Annotation == annotationKey(pv) || p.Annotation == annotationKey(volumeOfPV(pv))
	}
	number, named := shardNumber(p.Lease)
	if p.shards == 0 && number == 0 {
		return true // it may be the only shard
	}
	shards := cmp.Or(p.shards, Shards)
	return !named || number == shardOf(pv, shards) || number == shardOf(volumeOfPV(pv), shards)
}

// OfShard reports whether a whole shard is unreadable, which may have the entry of a volume with any name.
func (p Problem) OfShard() bool {
	number, _ := shardNumber(p.Lease)
	return p.Annotation == "" && number != topologyNumber
}

// HidesEntries reports whether the unreadable content may have entries. The Lease of the chunks has none, and an entry
// that lacks a chunk is a problem of its own.
func (p Problem) HidesEntries() bool { return p.Annotation != "" || p.OfShard() }

// String formats the problem as one line.
func (p Problem) String() string {
	if p.Annotation == "" {
		return fmt.Sprintf("Lease %s: %v", p.Lease, p.Err)
	}
	return fmt.Sprintf("Lease %s, annotation %s: %v", p.Lease, p.Annotation, p.Err)
}

func leaseName(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
