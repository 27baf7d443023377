package inflight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Shards is the number of Leases of a log, unless Config.Shards is lower. An entry takes 1 to 2 KiB and the
// annotations of an object are limited to 256 KiB in total. So a shard holds over 120 entries and the log a thousand,
// ten times as many as the default of 100 workers has in flight. At 5,000 nodes with a topology segment each, an entry
// is hardly longer, and the chunks of all entries take 24 KB of a Lease of their own. With eight concurrent writes an
// API server's latency of 10 ms does not limit provisioning, and a take-over still needs only eight reads and eight
// writes. The number is part of the format: a shard that records no number belongs to a log of this many shards.
const Shards = 8

const (
	// LabelLog is on each shard with the value "true", so that people and the leak audit can list the shards.
	LabelLog = "csi-reclaimer.io/in-flight-log"
	// labelBackup keeps Velero from backing the Lease up, because a restored log describes an earlier state.
	labelBackup = "velero.io/exclude-from-backup"
	// annMeta is the annotation with the shard's metadata.
	annMeta = "csi-reclaimer.io/in-flight-log"
	// entryPrefix begins the key of each entry.
	entryPrefix = "in-flight.csi-reclaimer.io/"
	// settlePrefix begins the key of an annotation that settles an entry, and whose name part is the entry's.
	settlePrefix = "settle.csi-reclaimer.io/"
	// hashPrefix begins the name part for volumes whose name is too long. A PersistentVolume's name has no underscore, so
	// no volume is named like this.
	hashPrefix = "sha256_"
	// maxNamePart is the longest name part of an annotation's key.
	maxNamePart = 63
	metaVersion = 1
)

func annotationKey(volume string) string {
	if len(volume) <= maxNamePart {
		return entryPrefix + volume
	}
	sum := sha256.Sum256([]byte(volume))
	return entryPrefix + hashPrefix + hex.EncodeToString(sum[:16])
}

// volumeOf returns the volume's name in the key of an entry, empty if the key has its hash only.
func volumeOf(key string) string {
	name := strings.TrimPrefix(key, entryPrefix)
	if strings.HasPrefix(name, hashPrefix) {
		return ""
	}
	return name
}

// shardOf returns the number of a volume's shard in a log of so many shards.
func shardOf(volume string, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(volume)) // never fails
	return int(h.Sum32() % uint32(shards))
}

// meta is the metadata of a shard.
type meta struct {
	Version int    `json:"version"`
	Driver  string `json:"driver"`
	// Shards is the number of shards of the log, 0 for the constant Shards.
	Shards int `json:"shards,omitempty"`
	// UID is the Lease's own UID, which a copy does not have. It is empty in a shard that was just created.
	UID types.UID `json:"uid,omitempty"`
	// Epoch and Process identify the leader, where Process is random, so that two processes that chose the same epoch at
	// the same moment differ, as do two take-overs of one process. Write counts this process' writes of the shard: an
	// update without a change would get no new resourceVersion, and an earlier write might land after it.
	Epoch   int64  `json:"epoch,omitempty"`
	Process string `json:"process,omitempty"`
	Write   int64  `json:"write,omitempty"`
	// Identity is for human readers.
	Identity string `json:"identity,omitempty"`
}

// ledBy reports whether the process of own wrote the metadata during the same take-over.
func (m meta) ledBy(own meta) bool { return m.Process == own.Process && m.Epoch == own.Epoch }

func (m meta) shards() int {
	if m.Shards == 0 {
		return Shards
	}
	return m.Shards
}

// shardsNoted returns the number that a log with so many shards records in its metadata.
func shardsNoted(shards int) int {
	if shards == Shards {
		return 0
	}
	return shards
}

func (m meta) String() string {
	data, err := json.Marshal(m)
	if err != nil {
		return "{}" // unreachable: all of its types can be marshaled
	}
	return string(data)
}

// view is a Lease as it was read. The zero value stands for a Lease that does not exist.
type view struct {
	lease *coordinationv1.Lease // read-only
	meta  meta
	err   error // why the Lease is read-only, nil if it is writable
}

func (v view) missing() bool { return v.lease == nil }

// fresh reports whether the Lease was created and not written since.
func (v view) fresh() bool { return v.lease != nil && v.err == nil && v.meta.UID == "" }

func (v view) uid() types.UID {
	if v.lease == nil {
		return ""
	}
	return v.lease.UID
}

// version returns the resourceVersion of the Lease, empty if it does not exist.
func (v view) version() string {
	if v.lease == nil {
		return ""
	}
	return v.lease.ResourceVersion
}

// content returns the stored entries and chunks by key.
func (v view) content() map[string]string {
	all := v.entries()
	maps.Copy(all, v.with(chunkPrefix))
	return all
}

func (v view) entries() map[string]string { return v.with(entryPrefix) }

func (v view) with(prefix string) map[string]string {
	values := map[string]string{}
	if v.lease == nil {
		return values
	}
	for key, value := range v.lease.Annotations {
		if strings.HasPrefix(key, prefix) {
			values[key] = value
		}
	}
	return values
}

// shards returns the number of shards of the log, 0 if it cannot be read.
func (v view) shards() int {
	if v.meta.Version == 0 {
		return 0
	}
	return v.meta.shards()
}

func (v view) chunk(hash string) (string, bool) {
	if v.lease == nil {
		return "", false
	}
	value, found := v.lease.Annotations[chunkPrefix+hash]
	return value, found
}

// look parses the metadata of a Lease, nil for none. An empty driver accepts the Lease of any driver.
func look(lease *coordinationv1.Lease, driver string) view {
	v := view{lease: lease}
	if lease == nil {
		return v
	}
	data, ok := lease.Annotations[annMeta]
	if !ok {
		v.err = fmt.Errorf("%w: it has no annotation %s", ErrForeign, annMeta)
		return v
	}
	if err := json.Unmarshal([]byte(data), &v.meta); err != nil {
		v.err = fmt.Errorf("%w: annotation %s: %w", ErrForeign, annMeta, err)
		return v
	}
	switch {
	case v.meta.Version != metaVersion:
		v.err = fmt.Errorf("%w: version %d", ErrVersion, v.meta.Version)
	case v.meta.Shards < 0 || v.meta.Shards > Shards:
		v.err = fmt.Errorf("%w: its log has %d shards", ErrVersion, v.meta.Shards)
	case driver != "" && v.meta.Driver != driver:
		v.err = fmt.Errorf("%w: it is of driver %q", ErrForeign, v.meta.Driver)
	case v.meta.UID == "" && len(v.content()) > 0:
		v.err = fmt.Errorf("%w: it has content and no UID", ErrCopy)
	case v.meta.UID != "" && v.meta.UID != lease.UID:
		v.err = fmt.Errorf("%w: it was written as the Lease with UID %s", ErrCopy, v.meta.UID)
	}
	return v
}

// read decodes the entries of the shard with this number that is not read-only, and calls take for each by key. If left
// is not nil, entries after the first so many bytes before compression are problems. topology is the Lease with the
// log's chunks, and may itself be read-only, because the hash proves the content of a chunk.
func (v view) read(number int, c *chunks, topology view, left *int,
	take func(key string, one coded)) (problems []Problem) {
	stored := v.entries()
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		one, err := v.decode(key, number, c, topology, left)
		if err != nil {
			problems = append(problems, Problem{Lease: leaseName(v.lease), Annotation: key, Volume: volumeOf(key), Err: err})
			continue
		}
		take(key, one)
	}
	return problems
}

// decode decodes the entry of that key as read does.
func (v view) decode(key string, number int, c *chunks, topology view, left *int) (coded, error) {
	one, err := c.decode(v.lease.Annotations[key], left, topology.chunk)
	switch {
	case err != nil:
	case annotationKey(one.entry.Volume) != key:
		err = fmt.Errorf("%w: it is of volume %q", ErrMisplaced, one.entry.Volume)
	case shardOf(one.entry.Volume, v.meta.shards()) != number:
		err = fmt.Errorf("%w: it belongs to shard %d", ErrMisplaced, shardOf(one.entry.Volume, v.meta.shards()))
	}
	return one, err
}

// shardNumber parses the number of a shard from the name of its Lease.
func shardNumber(lease string) (int, bool) {
	if strings.HasSuffix(lease, topologySuffix) {
		return topologyNumber, true
	}
	_, suffix, _ := strings.Cut(lease[max(0, strings.LastIndexByte(lease, '-')):], "-")
	number, err := strconv.Atoi(suffix)
	return number, err == nil && number < Shards
}
