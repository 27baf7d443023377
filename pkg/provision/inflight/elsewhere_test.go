package inflight

import (
	"errors"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhereALogBelongs(t *testing.T) {
	cfg := Config{Namespace: "new", Name: "disk-in-flight", Driver: "disk"}
	for name, test := range map[string]struct {
		driver, namespace, lease string
		want                     Belonging
	}{
		"its own":                    {"disk", "new", "disk-in-flight-7", BelongsHere},
		"in another namespace":       {"disk", "old", "disk-in-flight-7", BelongsElsewhere},
		"under another name":         {"disk", "new", "other-in-flight-7", BelongsElsewhere},
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

// TestStrays: they are counted, whether they can be read or not.
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
