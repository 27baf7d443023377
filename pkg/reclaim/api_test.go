package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/api"
)

// TestAPI pins the exported names, each with the reason why it is public. Update the list with -update.
func TestAPI(t *testing.T) { api.Check(t, ".", "testdata/api.txt") }
