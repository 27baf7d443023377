package inflight

import (
	"fmt"
	"hash/fnv"
	"regexp"
)

// ApartName returns the name of the PersistentVolume for this node's volume if another node's PersistentVolume already
// has the volume's own name.
func ApartName(volume, node string) string {
	hash := fnv.New32a()
	hash.Write([]byte(node)) // never fails (hash.Hash)
	return fmt.Sprintf("%s-apart-%08x", volume, hash.Sum32())
}

var apart = regexp.MustCompile(`-apart-[0-9a-f]{8}$`)

// volumeOfPV returns the name of the volume of a PersistentVolume.
func volumeOfPV(pv string) string { return apart.ReplaceAllString(pv, "") }
