package inflight

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/validation"
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
	// annMeta is the annotation with the shard's metadata.
	annMeta = "csi-reclaimer.io/in-flight-log"
	// chunkPrefix begins the key of each chunk. The name part is a hash of the chunk's content.
	chunkPrefix = "topology.csi-reclaimer.io/"
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

// shardOf returns the number of a volume's shard in a log with this number of shards.
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

func (m meta) shards() int { return cmp.Or(m.Shards, Shards) }

// shardsNoted returns the value of meta.Shards for a log with this number of shards.
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
	lease *coordinationv1.Lease // read-only, with the entries of the old Lease
	meta  meta
	err   error // why the Lease is read-only, nil if it is writable
	// own and old are the young and the old Lease themselves. Both are nil if no old Lease counts.
	own, old *coordinationv1.Lease
	// blames is the old Lease if err is about it. Its repair must not touch the young Lease.
	blames *coordinationv1.Lease
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
		if strings.HasPrefix(key, prefix) && key != splitMark {
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
	case v.meta.Version != metaVersion && v.meta.Version != splitVersion:
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
// is not nil, it is the number of bytes before compression that are left for entries, and entries beyond it are
// problems. topology is the Lease with the log's chunks, and may itself be read-only, because the hash proves the
// content of a chunk.
func (v view) read(number int, c codec, topology view, left *int,
	take func(key string, one coded)) (problems []Problem) {
	stored := v.entries()
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		one, err := v.decode(key, number, c, topology, left)
		if err != nil {
			problems = append(problems, Problem{Lease: leaseName(v.leaseOf(key)), Annotation: key, Volume: volumeOf(key),
				Err: err})
			continue
		}
		take(key, one)
	}
	return problems
}

// decode decodes the entry of that key as read does.
func (v view) decode(key string, number int, c codec, topology view, left *int) (coded, error) {
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
	lease = strings.TrimSuffix(lease, oldSuffix)
	_, suffix, _ := strings.Cut(lease[max(0, strings.LastIndexByte(lease, '-')):], "-")
	number, err := strconv.Atoi(suffix)
	return number, err == nil && number < Shards
}

// An operator settles an entry by an annotation beside it. Its value is a hash of the bytes that the operator was
// shown, so that an entry that changed since stays. The leader obeys the annotation at its next read of the Lease or at
// its take-over, and removes it with its next write even if it settles no entry.

// settleKey returns the key of the annotation that settles the entry of that key.
func settleKey(key string) string { return settlePrefix + strings.TrimPrefix(key, entryPrefix) }

// settleValue returns the value that settles an entry with exactly these stored bytes.
func settleValue(stored string) string {
	sum := sha256.Sum256([]byte(stored))
	return hex.EncodeToString(sum[:16])
}

// settles reports whether an existing Lease settles the entry of that key in its stored form.
func (v view) settles(key string) bool {
	stored, there := v.lease.Annotations[key]
	return there && v.lease.Annotations[settleKey(key)] == settleValue(stored)
}

// change lists the changes that others made to a shard.
type change struct {
	settled  []string // the keys of settled entries whose stored bytes equal the wanted ones
	ignored  []string // the keys of settling annotations without such an entry
	appeared []string // the keys of entries unknown to this process
}

// compare compares an existing Lease with the entries that are wanted, being removed (removing) or unreadable (kept),
// all by key. It is a pure function, in which an entry that the Lease lacks is no change, because it is written again.
func compare(v view, want map[string]string, removing, kept func(key string) bool) change {
	var c change
	for _, settle := range slices.Sorted(maps.Keys(v.with(settlePrefix))) {
		key := entryPrefix + strings.TrimPrefix(settle, settlePrefix)
		switch value, wanted := want[key]; {
		case wanted && v.settles(key) && value == v.lease.Annotations[key]:
			c.settled = append(c.settled, key)
		case !removing(key):
			c.ignored = append(c.ignored, settle)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.entries())) {
		if _, wanted := want[key]; !wanted && !removing(key) && !kept(key) {
			c.appeared = append(c.appeared, key)
		}
	}
	return c
}

const (
	// room is the size in bytes of a shard's annotations: the API server's limit less a margin for the annotations of
	// others.
	room = validation.TotalAnnotationSizeLimitB - 16<<10
	// reserve is the part of the room that new entries leave to open ones. An open entry grows by a second request, or by
	// the note that the volume is discarded.
	reserve = room / 8
	// notes is the part of the reserve that second requests leave to notes, of some 30 bytes an entry. No open request is
	// repeated without its note.
	notes = 8 << 10
	// inflation is the number of bytes before compression for which an entry takes at least a byte of room. A StorageClass
	// and a VolumeAttributesClass may have 256 KiB of parameters each. These fit twice, once for each request.
	inflation = 8
	// maxContent limits what Locate decompresses of the entries of a Lease, in bytes. Anyone who may create a Lease may
	// forge one, and 256 KiB of DEFLATE can take 190 MiB of the reader's memory.
	maxContent = inflation * validation.TotalAnnotationSizeLimitB
	// maxValues limits the commas of an entry that Locate decodes, and thereby its values: an empty object in a list takes
	// 3 bytes of text, but 100 bytes of memory. Without compression, a Lease has hardly room for more.
	maxValues = validation.TotalAnnotationSizeLimitB / 4
	// namespaceShare and classShare limit the bytes that the entries of one namespace and of one StorageClass take, for
	// each byte that stays free. A single namespace can take half of the room for new entries, the next one half of the
	// rest, and so on, so that a further namespace always has room. A class can take seven eighths, so that namespaces
	// have shares even if all of them use one class.
	namespaceShare, classShare = 1, 7
)

// admit returns an error if a shard has no room for the entry it, which is among the wanted ones. before is the entry
// that it replaces, nil for none.
func (s *shard) admit(it, before *item, own meta) error {
	used := s.used(own)
	if before != nil {
		limit := room - notes
		if len(it.entry.Requests) <= len(before.entry.Requests) {
			used, limit = s.total(own), room // entries of an earlier version may weigh more than the room, and need notes too
		}
		if used > limit {
			return fmt.Errorf("%w: Lease %s has no room for a change of an entry", ErrFull, s.name)
		}
		return nil
	}
	free := room - reserve - used
	if free < 0 {
		if alone := s.alone(it, own); alone > room-reserve {
			return fmt.Errorf("%w: it takes %d bytes of the %d that a Lease has for entries (stored in %d, %d before "+
				"compression)", ErrTooLarge, alone, room-reserve, len(it.value), it.content)
		}
		return fmt.Errorf("%w: Lease %s has no room beside its %d entries", ErrFull, s.name, len(s.want)-1)
	}
	for _, by := range owners {
		if held, count := s.held(by, by.of(it.entry)); count > 1 && held > by.share*free {
			return fmt.Errorf("%w: %s %q has %d entries in Lease %s, all that it may have there", ErrShare, by.kind,
				by.of(it.entry), count-1, s.name)
		}
	}
	return nil
}

// owner is a kind of object that has a share of each shard.
type owner struct {
	kind  string
	share int
	of    func(*Entry) string
}

var (
	byNamespace = owner{"namespace", namespaceShare, func(e *Entry) string { return e.Claim.Namespace }}
	byClass     = owner{"StorageClass", classShare, classOf}
	owners      = []owner{byNamespace, byClass}
)

func classOf(e *Entry) string { return e.Requests[0].PV.Spec.StorageClassName }

// held returns the room in bytes that an owner's wanted entries take without their chunks, and their number.
func (s *shard) held(by owner, name string) (total, count int) {
	for key, it := range s.want {
		if by.of(it.entry) == name {
			total += len(key) + it.weight()
			count++
		}
	}
	return total, count
}

// alone returns the room that the annotations take with this entry as the only one. The bytes of unreadable entries may
// come free.
func (s *shard) alone(it *item, own meta) int {
	only := *s
	only.want, only.kept = map[string]*item{annotationKey(it.entry.Volume): it}, nil
	return only.used(own)
}
