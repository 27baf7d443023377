package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestBelonging(t *testing.T) {
	cfg := Config{Namespace: "new", Name: "disk-in-flight", Driver: "disk"}
	for name, test := range map[string]struct {
		driver, namespace, lease string
		want                     Belonging
	}{
		"its own":                    {"disk", "new", "disk-in-flight-7", BelongsHere},
		"in another namespace":       {"disk", "old", "disk-in-flight-7", BelongsElsewhere},
		"under another name":         {"disk", "new", "other-in-flight-7", BelongsElsewhere},
		"under a short name":         {"disk", "new", "7", BelongsElsewhere},
		"of a node":                  {"disk", "new", "disk-in-flight-worker-1-0", BelongsElsewhere},
		"of a node, elsewhere":       {"disk", "old", "disk-in-flight-worker-1-0", BelongsElsewhere},
		"of another driver":          {"tape", "old", "tape-in-flight-0", BelongsToAnotherDriver},
		"of another driver, as ours": {"tape", "new", "disk-in-flight-0", BelongsToAnotherDriver},
		"of no driver":               {"", "old", "disk-in-flight-0", BelongsUnknown},
	} {
		got := cfg.belonging(test.driver, types.NamespacedName{Namespace: test.namespace, Name: test.lease})
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	cfg.Name, cfg.Shards = "disk-in-flight-worker-1", 1
	for lease, want := range map[types.NamespacedName]Belonging{
		{Namespace: "new", Name: "disk-in-flight-worker-1-0"}:  BelongsHere,
		{Namespace: "old", Name: "disk-in-flight-worker-1-0"}:  BelongsElsewhere,
		{Namespace: "new", Name: "disk-in-flight-worker-2-0"}:  BelongsToAnotherNode,
		{Namespace: "old", Name: "disk-in-flight-worker-2-0"}:  BelongsToAnotherNode,
		{Namespace: "old", Name: "disk-in-flight-worker-10-0"}: BelongsToAnotherNode,
		{Namespace: "new", Name: "disk-in-flight-0"}:           BelongsToAnotherNode,
	} {
		if got := cfg.belonging("disk", lease); got != want {
			t.Errorf("on a node, %s: got %q, want %q", lease, got, want)
		}
	}
}

// TestStrays checks that readable and unreadable entries are counted.
func TestStrays(t *testing.T) {
	cfg := settings(newStore(), "one")
	lease := func(namespace, of string, uid types.UID, entries int) coordinationv1.Lease {
		o := leaseOf(meta{Version: metaVersion, Driver: of, UID: "u"}, uid)
		o.Namespace, o.Name = namespace, cfg.shard(0)
		for _, volume := range volumes(0, entries) {
			o.Annotations[annotationKey(volume)] = "{}"
		}
		return *o
	}
	without := lease("bare", driver, "u", 1)
	delete(without.Annotations, annMeta)
	settled := lease("settled", driver, "u", 1)
	settled.Annotations[settleKey(annotationKey(volumes(0, 1)[0]))] = settleValue("{}")
	strays := cfg.strays([]coordinationv1.Lease{lease("driver", driver, "u", 1), lease("old", driver, "u", 3),
		lease("empty", driver, "u", 0), lease("old", "another", "u", 1), lease("copy", driver, "v", 2), without,
		settled})
	if len(strays) != 2 || strays[0].Entries != 3 || strays[0].Err != nil || strays[0].Lease.Namespace != "old" ||
		strays[1].Entries != 2 || !errors.Is(strays[1].Err, ErrCopy) {
		t.Errorf("%+v", strays)
	}
}

// lister is an API server that lists the Leases of all namespaces.
type lister struct {
	coordinationv1client.LeaseInterface // the other methods panic
	t                                   *testing.T
	namespace                           string // of the last call
	leases                              []coordinationv1.Lease
	err                                 error
}

func (l *lister) Leases(namespace string) coordinationv1client.LeaseInterface {
	l.namespace = namespace
	return l
}

func (l *lister) List(_ context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if l.namespace != metav1.NamespaceAll || options.LabelSelector != LabelLog+"=true" || options.Limit != listPage {
		l.t.Errorf("lists %d of namespace %q by the label %q", options.Limit, l.namespace, options.LabelSelector)
	}
	named, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return nil, err
	}
	list := &coordinationv1.LeaseList{}
	for i := range l.leases {
		if named.Matches(fields.Set{metav1.ObjectNameField: l.leases[i].Name}) {
			list.Items = append(list.Items, l.leases[i])
		}
	}
	return list, l.err
}

// TestListKeepsNoForeignContent checks that a list has what Locate and FindStrays read, and no content of other Leases.
func TestListKeepsNoForeignContent(t *testing.T) {
	cfg := settings(newStore(), "one")
	long := strings.Repeat("x", maxMeta)
	var all []coordinationv1.Lease
	add := func(namespace, name string, m meta, change func(*coordinationv1.Lease)) {
		o := leaseOf(m, "u")
		o.Namespace, o.Name = namespace, name
		o.Annotations[annotationKey(volumes(0, 1)[0])], o.Annotations["other"] = long, long
		o.Spec.HolderIdentity, o.ManagedFields = &long, []metav1.ManagedFieldsEntry{{Manager: long}}
		change(o)
		all = append(all, *o)
	}
	plain := func(*coordinationv1.Lease) {}
	of := func(driver string) meta { return meta{Version: metaVersion, Driver: driver, UID: "u"} }
	split, nameless, copied := of(driver), of(""), of("")
	split.Version, copied.UID = splitVersion, ""
	add("here", shardName(0), of(driver), plain)
	add("split", shardName(0), split, plain)
	add("split", shardName(0)+oldSuffix, of("another"), plain)
	add("alone", shardName(0)+oldSuffix, of(driver), plain)
	add("foreign", shardName(0), of("another"), plain)
	add("foreign", shardName(0)+oldSuffix, of(driver), plain)
	add("nameless", shardName(0), nameless, plain)
	add("copied", shardName(0), copied, plain)
	add("version", shardName(0), meta{}, plain)
	add("bare", shardName(0), of(driver), func(o *coordinationv1.Lease) { delete(o.Annotations, annMeta) })
	add("broken", shardName(0), of(driver), func(o *coordinationv1.Lease) { o.Annotations[annMeta] = long + long })
	asked := func(of string) bool { return of == driver }
	listed := must.Get(List(t.Context(), &lister{t: t, leases: all}, metav1.ListOptions{}, asked))(t)
	results := func(leases []coordinationv1.Lease) string {
		entries, problems := Locate(leases, asked)
		return fmt.Sprintf("%+v\n%+v\n%+v", entries, problems, cfg.strays(leases))
	}
	want := strings.Replace(results(all), "annotation "+annMeta+": invalid character 'x' looking for beginning of value",
		"it has no annotation "+annMeta, 1) // of the broken one
	if got := results(listed); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var whole []string
	for _, o := range listed {
		if o.Annotations["other"] != "" {
			whole = append(whole, strings.TrimSuffix(leaseName(&o), shardName(0)))
		}
		if len(o.ManagedFields) > 0 || o.Spec.HolderIdentity != nil {
			t.Errorf("%s has fields that nothing reads", leaseName(&o))
		}
	}
	if want := []string{"here/", "split/", "alone/" + shardName(0) + oldSuffix, "foreign/" + shardName(0) + oldSuffix,
		"nameless/", "copied/"}; !slices.Equal(whole, want) {
		t.Errorf("the content of %q is kept, want %q", whole, want)
	}
}

// TestListHasBound: a tenant that may create Leases can name any driver in them.
func TestListHasBound(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var all []coordinationv1.Lease
	add := func(namespace string, m meta) {
		o := leaseOf(m, "u")
		o.Namespace, o.Name, o.Annotations["other"] = namespace, shardName(len(all)), long
		all = append(all, *o)
	}
	for range maxListed/len(long) - 1 {
		add("forged", meta{Version: 99, Driver: driver})
		add("foreign", meta{Version: metaVersion, Driver: "another"})
	}
	asked := func(of string) bool { return of == driver }
	listed, err := List(t.Context(), &lister{t: t, leases: all}, metav1.ListOptions{}, asked)
	if err != nil || len(listed) != len(all) {
		t.Fatalf("listed %d of %d, %v", len(listed), len(all), err)
	}
	add("mine", meta{Version: metaVersion, Driver: driver, UID: "u"})
	if listed, err = List(t.Context(), &lister{t: t, leases: all}, metav1.ListOptions{}, asked); err == nil ||
		!strings.Contains(err.Error(), `most of it in namespace "forged"`) || listed != nil {
		t.Errorf("above the bound: %d, %v", len(listed), err)
	}
}

// TestStraysAreCounted checks that the last successful look counts, and that a log of one node lists its own name
// alone.
func TestStraysAreCounted(t *testing.T) {
	server := &lister{t: t}
	for _, namespace := range []string{"old", "older"} {
		for number := range 2 {
			o := leaseOf(meta{Version: metaVersion, Driver: driver, UID: "u"}, "u")
			o.Namespace, o.Name = namespace, shardName(number)
			o.Annotations[annotationKey("pvc-1")] = "{}"
			server.leases = append(server.leases, *o)
		}
	}
	for shards, want := range map[int]int{Shards: 4, 1: 2} {
		cfg := settings(newStore(), "one")
		cfg.Leases, cfg.Shards, server.err = server, shards, nil
		l := must.Get(New(cfg))(t)
		strays, err := l.FindStrays(t.Context())
		if err != nil || len(strays) != want || l.Stats().Elsewhere != want {
			t.Errorf("%d shards: %d strays, %d entries, want %d: %v", shards, len(strays), l.Stats().Elsewhere, want, err)
		}
		server.err = errNo
		if strays, err := l.FindStrays(t.Context()); !errors.Is(err, errNo) || strays != nil || l.Stats().Elsewhere != want {
			t.Errorf("%d shards: after an error %d strays, %d entries, %v", shards, len(strays), l.Stats().Elsewhere, err)
		}
	}
}
