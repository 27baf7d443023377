package caches

import (
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestAssumed(t *testing.T) {
	const name = "pvc-short"
	of := func(claim types.UID) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: claim}}}
	}
	tell := func(s *Assumed, claim types.UID) { s.Drop(volume.Of(of(claim))) }
	cases := map[string]struct {
		happens func(s *Assumed)
		there   bool
	}{
		"a stored object is there until the watch shows it": {func(s *Assumed) {
			s.Expect(name, "u1")
			s.Put(of("u1"))
		}, true},
		"an object that the watch shows is dropped": {func(s *Assumed) {
			s.Expect(name, "u1")
			s.Put(of("u1"))
			tell(s, "u1")
		}, false},
		"the watch was faster than the answer, and may have told the end": {func(s *Assumed) {
			s.Expect(name, "u1")
			tell(s, "u1")
			s.Put(of("u1"))
		}, false},
		"the watch tells of another claim's PV that had the name": {func(s *Assumed) {
			s.Expect(name, "u1")
			tell(s, "u2")
			s.Put(of("u1"))
			tell(s, "u2")
		}, true},
		"the watch has told of an earlier one, whose try failed": {func(s *Assumed) {
			s.Expect(name, "u1")
			tell(s, "u1")
			s.Forget(name)
			s.Expect(name, "u1")
			s.Put(of("u1"))
		}, true},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			s := NewAssumed(func(string) bool { return false })
			c.happens(s)
			if there := s.Get(name) != nil; there != c.there || len(s.expected) > 0 {
				t.Errorf("assumed: %v, want %v; expected %v", there, c.there, s.expected)
			}
		})
	}
}

// TestAssumedPVsMissedByTheWatch covers PVs that existed only while the watch was interrupted, or came after the list.
func TestAssumedPVsMissedByTheWatch(t *testing.T) {
	seen := "10"
	s := NewAssumed(func(version string) bool { return !session.Newer(version, seen) })
	put := func(name, version string) {
		s.Expect(name, types.UID(name))
		s.Put(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: types.UID(name)}}})
	}
	put("gone", "11")
	put("later", "13")
	if s.Get("gone") == nil || s.Get("later") == nil || len(s.Expire()) > 0 {
		t.Fatal("a PV that the watch has not reached is not assumed")
	}
	seen = "12" // by a list without the first
	if s.Get("gone") != nil {
		t.Error("a PV that the list does not show is assumed")
	}
	if expired := s.Expire(); len(expired) != 1 || expired[0].Name != "gone" {
		t.Errorf("expired: %v", expired)
	}
	if s.Get("later") == nil || len(s.stored) != 1 {
		t.Error("a PV that was created after the list was read is not assumed any more")
	}
	put("late", "12") // its answer came after the list
	if s.Get("late") != nil || len(s.stored) != 1 {
		t.Error("a PV is assumed that the watch cache is past")
	}
}
