package twins

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Each operand of a condition counts by itself.

func TestAMigratedPVThatKeepsItsVolumeLosesTheFinalizer(t *testing.T) {
	for _, policy := range []volume.Policy{volume.PolicyRetain, volume.PolicyRecycle} {
		s := proven()
		pvIs(migrate, of(policy))(&s)
		if d := Decide(s, now()); d.Action != RemoveFinalizer || d.Reason != ReasonMigrated {
			t.Errorf("policy %v: %s because %s", policy, d.Action, d.Reason)
		}
	}
}

func TestAPVThatIsNotLeftYetIsNotWaitedFor(t *testing.T) {
	s := proven()
	s.Other = OtherPresent
	if d := Decide(s, now()); d.After != 0 {
		t.Errorf("waits %s", d.After)
	}
}
