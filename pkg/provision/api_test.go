package provision

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/api"
)

// TestTheAPI pins the exported names, each with the reason why it is public. Update the list with -update-api.
func TestTheAPI(t *testing.T) { api.Check(t, ".", "testdata/api.txt") }
