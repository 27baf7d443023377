package topology

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// spread returns the index, below n, of the term that a claim with this name prefers while no node is selected. Claims
// of one StatefulSet rotate: their names end with -<set>-<ordinal>, so the ordinal is added to a hash of the set's
// name, which is the same for all claims of one pod. Every other name that ends with a number rotates as well; the rest
// is distributed by hash.
//
// The numbers equal the results of Kubernetes' getPVCNameHashAndIndexOffset (pkg/volume/util), which has spread volumes
// so far. A set that grows after a change of the provisioner stays balanced.
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
