package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// ownedBy returns a Config.Owner for a Node with that UID.
func ownedBy(uid types.UID) func(context.Context) *metav1.OwnerReference {
	return func(context.Context) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "worker-1", UID: uid}
	}
}

// ofNode returns the configuration for a log of one node.
func ofNode(s *store, by string) Config {
	cfg := settings(s, by)
	cfg.Shards, cfg.Owner = 1, ownedBy("node")
	return cfg
}

// wantOwner checks the owner of the first shard, empty for none.
func (s *store) wantOwner(t *testing.T, want types.UID) {
	t.Helper()
	var got types.UID
	for _, owner := range s.read(shardName(0)).OwnerReferences {
		got += owner.UID
	}
	if got != want {
		t.Errorf("its owner is %q, want %q", got, want)
	}
}

func TestOwnerOf(t *testing.T) {
	for _, test := range []struct {
		managed bool
		entries int
		known   bool
		want    owning
	}{
		{false, 0, false, ownLeave},
		{false, 0, true, ownLeave},
		{false, 1, true, ownLeave},
		{true, 0, false, ownLeave},
		{true, 0, true, ownSet},
		{true, 1, true, ownNone},
		{true, 1, false, ownNone},
	} {
		if got := ownerOf(test.managed, test.entries, test.known); got != test.want {
			t.Errorf("%+v: got %d", test, got)
		}
	}
}

// TestNodeLogHasOwnerWhileEmpty checks that the only Lease of a node's log has an owner only while it is empty.
func TestNodeLogHasOwnerWhileEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		p := start(t, ofNode(s, "one"))
		if all := s.all(); len(all) != 1 || all[0].Name != shardName(0) || s.count("get") != 3 {
			t.Errorf("%d Leases, %d reads", len(all), s.count("get"))
		}
		s.wantOwner(t, "node")
		var v []string
		for number := range 4 { // of several shards, if the log had them
			v = append(v, volumes(number, 1)...)
		}
		for _, volume := range v {
			p.mustPut(volume)
			s.wantOwner(t, "")
		}
		s.wantStored(t, v...)
		for i, volume := range v {
			p.Remove(volume)
			time.Sleep(time.Minute)
			if i < len(v)-1 {
				s.wantOwner(t, "")
			}
		}
		s.wantStored(t)
		s.wantOwner(t, "node")
		if len(s.all()) != 1 {
			t.Errorf("%d Leases", len(s.all()))
		}
	})
}

// TestUnreadableEntryRemovesOwner: the unreadable annotation may be an entry.
func TestUnreadableEntryRemovesOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		start(t, ofNode(s, "one")).stop()
		s.edit(shardName(0), func(l *coordinationv1.Lease) { l.Annotations[annotationKey("pvc-1")] = "?" })
		s.wantOwner(t, "node")
		p := start(t, ofNode(s, "two"))
		s.wantOwner(t, "")
		p.wantState("pvc-1", Unreadable)
	})
}

// TestUnknownOwner checks that an earlier process' owner reference is removed with the first entry.
func TestUnknownOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		start(t, ofNode(s, "one")).stop()
		cfg := ofNode(s, "two")
		cfg.Owner = func(context.Context) *metav1.OwnerReference { return nil }
		p := start(t, cfg)
		s.wantOwner(t, "node")
		p.mustPut("pvc-1")
		s.wantOwner(t, "")
		p.Remove("pvc-1")
		time.Sleep(time.Minute)
		s.wantStored(t)
		s.wantOwner(t, "")
	})
}

// TestOwnersOfClusterLogStay: another program set them.
func TestOwnersOfClusterLogStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		cfg := settings(s, "one")
		cfg.Owner = ownedBy("node")
		p := start(t, cfg)
		s.wantOwner(t, "")
		s.edit(shardName(0), func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{*ownedBy("another")(t.Context())}
		})
		p.mustPut(volumes(0, 1)...)
		s.wantOwner(t, "another")
	})
}

// TestOwnerStaysWithoutConfigOwner covers a log of one shard whose owner another program set.
func TestOwnerStaysWithoutConfigOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		cfg := ofNode(s, "one")
		cfg.Owner = nil
		p := start(t, cfg)
		s.edit(shardName(0), func(l *coordinationv1.Lease) {
			l.OwnerReferences = []metav1.OwnerReference{*ownedBy("another")(t.Context())}
		})
		p.mustPut("pvc-1")
		s.wantOwner(t, "another")
	})
}

// TestOwnerRefusedByAdmission: OwnerReferencesPermissionEnforcement requires the permission to delete the Lease.
func TestOwnerRefusedByAdmission(t *testing.T) {
	enforce := func(is, lease *coordinationv1.Lease) error {
		if slices.EqualFunc(is.OwnerReferences, lease.OwnerReferences, func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID
		}) {
			return nil
		}
		return apierrors.NewForbidden(leasesResource, lease.Name, errors.New("cannot set an ownerRef"))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.admit = enforce
		p := start(t, ofNode(s, "one"))
		s.wantOwner(t, "")
		p.mustPut("pvc-1")
		s.wantStored(t, "pvc-1")
	})
	synctest.Test(t, func(t *testing.T) { // from the removal of an entry on
		s := newStore()
		p := start(t, ofNode(s, "one"))
		p.mustPut("pvc-1")
		s.mu.Lock()
		s.admit = enforce
		s.mu.Unlock()
		p.Remove("pvc-1")
		time.Sleep(time.Minute)
		p.wantRemoved("pvc-1")
		s.wantOwner(t, "")
		p.mustPut("pvc-2")
	})
	synctest.Test(t, func(t *testing.T) { // an owner that may not be removed keeps entries out
		s := newStore()
		p := start(t, ofNode(s, "one"))
		s.mu.Lock()
		s.admit = enforce
		s.mu.Unlock()
		s.forget()
		wantError(t, p.put(entry("pvc-1")), ErrForbidden)
		if n := s.count("update"); n != 1 {
			t.Errorf("it was sent %d times", n)
		}
		p.wantState("pvc-1", Absent)
		s.wantStored(t)
	})
}

// TestLogKeepsItsNumberOfShards covers later processes with another configured number.
func TestLogKeepsItsNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newStore(), append(volumes(0, 1), volumes(3, 2)...)
		old := start(t, settings(s, "old"))
		old.mustPut(v[0], v[1])
		s.fail(lost.to().once())
		p := start(t, ofNode(s, "new"))
		for _, volume := range v[:2] {
			p.wantState(volume, Open)
		}
		p.mustPut(v[2])
		s.wantStored(t, v...)
		s.wantOwner(t, "")
		wantError(t, old.put(entry(volumes(5, 1)[0])), ErrSuperseded)
	})
	synctest.Test(t, func(t *testing.T) { // the number that a log of the cluster has is fixed
		s := newStore()
		start(t, ofNode(s, "old")).mustPut("pvc-1")
		p := start(t, settings(s, "new"))
		if problems := p.Problems(); len(problems) != 1 || !errors.Is(problems[0].Err, ErrForeign) {
			t.Errorf("problems %v", problems)
		}
		of := volumes(0, 1)[0]
		p.wantState(of, Unreadable)
		wantError(t, p.put(entry(of)), ErrUnreadable)
		s.wantStored(t, "pvc-1")
	})
}

// TestDecodeKnowsTheNumberOfShards checks that the number in a shard's metadata decides the shard of an entry.
func TestDecodeKnowsTheNumberOfShards(t *testing.T) {
	volume := volumes(5, 1)[0]
	e := entry(volume)
	stored := must.Get(newCodec("log-topology").encode(&e))(t)
	for _, test := range []struct {
		shards, number int
		want           error
	}{
		{1, 0, nil}, {1, 5, ErrForeign}, {0, 5, nil}, {0, 0, ErrMisplaced}, {8, 5, nil}, {9, 5, ErrVersion},
		{-1, 0, ErrVersion}, {2, shardOf(volume, 2), nil},
	} {
		lease := leaseOf(meta{Version: metaVersion, Driver: driver, Shards: test.shards, UID: "u"}, "u")
		lease.Name = shardName(test.number)
		lease.Annotations[annotationKey(volume)] = stored.value
		located, problems := Locate([]coordinationv1.Lease{*lease}, nil)
		switch {
		case test.want == nil && (len(located) != 1 || len(problems) > 0),
			test.want != nil && (len(located) > 0 || len(problems) != 1 || !errors.Is(problems[0].Err, test.want)):
			t.Errorf("%+v: %d entries, problems %v", test, len(located), problems)
		}
	}
	for shards, want := range map[int]int{1: 1, 2: 2, Shards: 0} { // a log of all shards records no number
		if got := shardsNoted(shards); got != want {
			t.Errorf("a log of %d shards records %d, want %d", shards, got, want)
		}
	}
}

// TestTwoProcessesOfANode: without leader election the old pod may still run when the new one takes over.
func TestTwoProcessesOfANode(t *testing.T) {
	collected := func(s *store) { s.remove(shardName(0)) } // garbage collection, after the Node was registered anew
	for name, between := range map[string]func(*store){"the Lease stays": func(*store) {}, "the Lease goes": collected} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				old := start(t, ofNode(s, "old"))
				between(s)
				start(t, ofNode(s, "new")).mustPut("pvc-1")
				wantError(t, old.put(entry("pvc-2")), ErrSuperseded)
				s.wantStored(t, "pvc-1")
			})
		})
	}
	t.Run("the old one creates the Lease anew before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			cfg := ofNode(s, "old")
			uid := types.UID("node")
			cfg.Owner = func(ctx context.Context) *metav1.OwnerReference { return ownedBy(uid)(ctx) }
			old := start(t, cfg)
			uid = "registered-anew"
			collected(s)
			old.mustPut("pvc-1")
			s.wantOwner(t, "")
			next := start(t, ofNode(s, "new"))
			next.wantState("pvc-1", Open)
			wantError(t, old.put(entry("pvc-2")), ErrSuperseded)
			s.wantStored(t, "pvc-1")
		})
	})
	t.Run("the Node that is registered anew is the owner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			cfg, uid := ofNode(s, "one"), types.UID("node")
			cfg.Owner = func(ctx context.Context) *metav1.OwnerReference { return ownedBy(uid)(ctx) }
			p := start(t, cfg)
			uid = "registered-anew"
			collected(s)
			p.mustPut("pvc-1")
			p.Remove("pvc-1")
			time.Sleep(time.Minute)
			s.wantOwner(t, "registered-anew")
		})
	})
}

// TestNodeLeaseCreatedByTwoProcesses checks that one of two processes ends, whatever the new one writes between the old
// one's steps, and that the remaining process knows all entries.
func TestNodeLeaseCreatedByTwoProcesses(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(verb, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStore()
					start(t, ofNode(s, "before")).stop() // gives the old process a higher epoch than the first one of a new Lease
					old := start(t, ofNode(s, "old"))
					s.remove(shardName(0))
					once := true
					s.fail(func(c call) fault {
						if c.by != "old" || c.verb != verb || !once {
							return fault{}
						}
						if verb == "update" && s.leases[shardName(0)] == nil { // to the Lease that is gone
							return fault{}
						}
						once = false
						if after {
							return fault{slow: 5 * time.Second}
						}
						return fault{wait: 5 * time.Second}
					})
					failed := make(chan error, 1)
					go func() { failed <- old.put(entry("pvc-1")) }()
					time.Sleep(time.Second)
					next := start(t, ofNode(s, "new"))
					err := <-failed
					if err != nil {
						wantError(t, err, ErrSuperseded)
					}
					next.mustPut("pvc-2")
					if want := []string{"pvc-2"}; next.state("pvc-1") == Absent {
						wantError(t, err, ErrSuperseded)
						s.wantStored(t, want...)
					} else {
						s.wantStored(t, "pvc-1", "pvc-2")
					}
					wantError(t, old.put(entry("pvc-3")), ErrSuperseded)
				})
			})
		}
	}
}
