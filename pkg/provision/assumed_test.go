package provision

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestShelf(t *testing.T) {
	const name = "pvc-short"
	of := func(claim types.UID) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: claim}}}
	}
	tell := func(s *assumed, claim types.UID) { s.drop(volume.Of(of(claim))) }
	cases := map[string]struct {
		happens func(s *assumed)
		there   bool
	}{
		"what was stored is there until the watch tells of it": {func(s *assumed) {
			s.expect(name, "u1")
			s.put(of("u1"))
		}, true},
		"what the watch tells of is dropped": {func(s *assumed) {
			s.expect(name, "u1")
			s.put(of("u1"))
			tell(s, "u1")
		}, false},
		"the watch was faster than the answer, and may have told the end": {func(s *assumed) {
			s.expect(name, "u1")
			tell(s, "u1")
			s.put(of("u1"))
		}, false},
		"the watch tells of another claim's PV that had the name": {func(s *assumed) {
			s.expect(name, "u1")
			tell(s, "u2")
			s.put(of("u1"))
			tell(s, "u2")
		}, true},
		"the watch has told of an earlier one, whose try failed": {func(s *assumed) {
			s.expect(name, "u1")
			tell(s, "u1")
			s.forget(name)
			s.expect(name, "u1")
			s.put(of("u1"))
		}, true},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			s := newAssumed()
			c.happens(s)
			if there := s.get(name) != nil; there != c.there || len(s.expected) > 0 {
				t.Errorf("on the assumed: %v, want %v; expected %v", there, c.there, s.expected)
			}
		})
	}
}
