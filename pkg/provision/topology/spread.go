package topology

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// spread returns which of n places, counted from 0, a claim with this name prefers while no node
// is selected. Claims of one StatefulSet go round: their names end with -<set>-<ordinal>, so the
// ordinal is added to a hash of the set's name, which is the same for all claims of one pod. Any
// other name that ends with a number goes round as well; the rest go by their hash.
//
// The numbers are those of Kubernetes' getPVCNameHashAndIndexOffset (pkg/volume/util), by which
// volumes were spread so far: a set that grows after the provisioner was exchanged stays even.
func spread(claim string, n int) int {
	base, ordinal := claim, uint32(0)
	if i := strings.LastIndexByte(claim, '-'); i >= 0 {
		if number, err := strconv.ParseUint(claim[i+1:], 10, 32); err == nil {
			ordinal = uint32(number)
			base = claim[:i]
			base = base[strings.LastIndexByte(base, '-')+1:]
		}
	}
	h := fnv.New32()
	h.Write([]byte(base)) // never fails (hash.Hash)
	return int((h.Sum32() + ordinal) % uint32(n))
}
