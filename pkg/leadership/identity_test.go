package leadership

import "testing"

func TestProcessesOfOneHostHaveDifferentIdentities(t *testing.T) {
	one, other := NewIdentity("disk-0"), NewIdentity("disk-0")
	if one == other || HostOf(one) != "disk-0" || HostOf(other) != "disk-0" {
		t.Errorf("%q of %q, and %q of %q", one, HostOf(one), other, HostOf(other))
	}
	if got := HostOf("disk-0"); got != "disk-0" {
		t.Errorf("the host of a stock sidecar's identity is %q", got)
	}
}
