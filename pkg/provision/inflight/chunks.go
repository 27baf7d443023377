package inflight

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/utils/lru"
)

const (
	// chunkPrefix begins the key of each chunk. The name part is a hash of the chunk's content.
	chunkPrefix = "topology.csi-reclaimer.io/"
	// inlineTopologies is the length of the longest list of topologies that an entry stores itself.
	inlineTopologies = 8
	// chunkMean and chunkMax are the average and the maximum number of topologies in a chunk. The content decides the end
	// of a chunk, so that a joining or leaving node changes a single chunk of a long list.
	chunkMean, chunkMax = 512, 2048
	// keptChunks bounds the number of cached chunks of a Log. At 5,000 nodes a list has about 20.
	keptChunks = 512
	// compressFrom is the size in bytes from which the value of an annotation is compressed. Each PUT carries all entries
	// of its Lease, so entries of an ordinary size of 1.5 KB are compressed too.
	compressFrom = 512
	// compressed begins the value of a compressed annotation.
	compressed = "deflate:"
	// maxValue limits the decompressed value of an annotation, in bytes.
	maxValue = 16 << 20
)

// In the JSON form of a TopologyRequirement with a segment for each node, both lists grow with the cluster and hold the
// same topologies. So an entry refers to chunks of the requisite list, and its preferred list to runs of that list.
type (
	storedRequirement struct {
		// Requisite is a short list itself, while Chunks has the hashes of the chunks of a long list.
		Requisite []map[string]string `json:"requisite,omitempty"`
		Chunks    []string            `json:"chunks,omitempty"`
		Preferred []storedRun         `json:"preferred,omitempty"`
	}
	// storedRun stands for Count topologies of the requisite list from index From on. If Count is 0, it is one topology
	// that the list does not contain.
	storedRun struct {
		From     int               `json:"from,omitempty"`
		Count    int               `json:"count,omitempty"`
		Segments map[string]string `json:"segments,omitempty"`
	}
	// storedChunk has a column of values for each key, because values of one key resemble each other and compress better
	// than whole topologies do. A column has Count values, nil for a topology without the key.
	storedChunk struct {
		Count   int                  `json:"count"`
		Columns map[string][]*string `json:"columns"`
	}
)

// chunk is a part of a requisite list.
type chunk struct {
	value      string // of its annotation
	topologies []*csi.Topology
}

// chunks caches the known chunks of a log, by hash. Entries share the topologies, which must not be changed. The type
// is safe for concurrent use.
type chunks struct {
	lease string // name of the Lease that stores them, for errors
	known *lru.Cache
}

func newChunks(lease string) *chunks { return &chunks{lease, lru.New(keptChunks)} }

// store returns the stored form of a requirement, nil for none, and adds the values of its chunks to refers, by hash.
func (c *chunks) store(r *csi.TopologyRequirement, refers map[string]string) (*storedRequirement, error) {
	if r == nil {
		return nil, nil
	}
	names := make([]string, len(r.GetRequisite()))
	at := make(map[string]int, len(names))
	for i, topology := range r.GetRequisite() {
		names[i] = canonical(topology.GetSegments())
		if _, found := at[names[i]]; !found {
			at[names[i]] = i
		}
	}
	s := &storedRequirement{Preferred: runs(r.GetPreferred(), at)}
	if len(names) <= inlineTopologies {
		for _, topology := range r.GetRequisite() {
			s.Requisite = append(s.Requisite, segmentsOf(topology))
		}
		return s, nil
	}
	for begin := 0; begin < len(names); {
		end := begin + chunkEnd(names[begin:])
		hash, one, err := c.of(names[begin:end], r.GetRequisite()[begin:end])
		if err != nil {
			return nil, err
		}
		s.Chunks = append(s.Chunks, hash)
		refers[hash] = one.value
		begin = end
	}
	return s, nil
}

// of returns the chunk of these topologies, and its hash.
func (c *chunks) of(names []string, topologies []*csi.Topology) (string, chunk, error) {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	hash := hex.EncodeToString(sum[:12])
	if known, found := c.known.Get(hash); found {
		one, _ := known.(chunk)
		return hash, one, nil
	}
	one := chunk{topologies: make([]*csi.Topology, len(topologies))}
	for i, topology := range topologies {
		one.topologies[i] = &csi.Topology{Segments: maps.Clone(topology.GetSegments())}
	}
	value, err := json.Marshal(columnsOf(topologies))
	if err != nil {
		return "", chunk{}, err
	}
	one.value = compress(value)
	c.known.Add(hash, one)
	return hash, one, nil
}

// load returns the requirement of a stored form, and adds the values of its chunks to refers, by hash. value returns
// the stored value of a chunk.
func (c *chunks) load(s *storedRequirement, value func(hash string) (string, bool),
	refers map[string]string) (*csi.TopologyRequirement, error) {
	r := &csi.TopologyRequirement{}
	for _, segments := range s.Requisite {
		r.Requisite = append(r.Requisite, &csi.Topology{Segments: segments})
	}
	for _, hash := range s.Chunks {
		one, err := c.read(hash, value)
		if err != nil {
			return nil, fmt.Errorf("chunk %s of the topology requirement, in Lease %s: %w", hash, c.lease, err)
		}
		refers[hash] = one.value
		r.Requisite = append(r.Requisite, one.topologies...)
	}
	for _, run := range s.Preferred {
		switch {
		case run.Count == 0:
			r.Preferred = append(r.Preferred, &csi.Topology{Segments: run.Segments})
		case run.From < 0 || run.Count < 0 || run.From > len(r.Requisite)-run.Count:
			return nil, fmt.Errorf("preferred topologies %d to %d of %d", run.From, run.From+run.Count, len(r.Requisite))
		default:
			r.Preferred = append(r.Preferred, r.Requisite[run.From:run.From+run.Count]...)
		}
	}
	return r, nil
}

// read returns the chunk with this hash, and checks its content against the hash.
func (c *chunks) read(hash string, value func(hash string) (string, bool)) (chunk, error) {
	if known, found := c.known.Get(hash); found {
		one, _ := known.(chunk)
		return one, nil
	}
	text, found := value(hash)
	if !found {
		return chunk{}, errors.New("it is missing")
	}
	data, err := decompress(text)
	if err != nil {
		return chunk{}, err
	}
	var stored storedChunk
	if err := json.Unmarshal(data, &stored); err != nil {
		return chunk{}, err
	}
	topologies, err := stored.topologies()
	if err != nil {
		return chunk{}, err
	}
	names := make([]string, len(topologies))
	for i, topology := range topologies {
		names[i] = canonical(topology.GetSegments())
	}
	is, one, err := c.of(names, topologies)
	if err == nil && is != hash {
		err = errors.New("its content has another hash")
	}
	return one, err
}

func columnsOf(topologies []*csi.Topology) storedChunk {
	s := storedChunk{Count: len(topologies), Columns: map[string][]*string{}}
	for i, topology := range topologies {
		for key, value := range topology.GetSegments() {
			if s.Columns[key] == nil {
				s.Columns[key] = make([]*string, len(topologies))
			}
			s.Columns[key][i] = &value
		}
	}
	return s
}

func (s storedChunk) topologies() ([]*csi.Topology, error) {
	if s.Count < 0 || s.Count > chunkMax {
		return nil, fmt.Errorf("%d topologies", s.Count)
	}
	all := make([]*csi.Topology, s.Count)
	for i := range all {
		all[i] = &csi.Topology{Segments: map[string]string{}}
	}
	for key, column := range s.Columns {
		if len(column) != s.Count {
			return nil, fmt.Errorf("%d values of key %q for %d topologies", len(column), key, s.Count)
		}
		for i, value := range column {
			if value != nil {
				all[i].Segments[key] = *value
			}
		}
	}
	return all, nil
}

// runs encodes preferred topologies as runs of the requisite list, whose indexes are in at.
func runs(preferred []*csi.Topology, at map[string]int) []storedRun {
	var all []storedRun
	for _, topology := range preferred {
		i, found := at[canonical(topology.GetSegments())]
		last := len(all) - 1
		switch {
		case !found:
			all = append(all, storedRun{Segments: topology.GetSegments()})
		case last >= 0 && all[last].Count > 0 && all[last].From+all[last].Count == i:
			all[last].Count++
		default:
			all = append(all, storedRun{From: i, Count: 1})
		}
	}
	return all
}

// chunkEnd returns the number of topologies in the first chunk.
func chunkEnd(names []string) int {
	for i, name := range names[:min(len(names), chunkMax)] {
		h := fnv.New32a()
		h.Write([]byte(name)) // never fails
		if h.Sum32()%chunkMean == 0 {
			return i + 1
		}
	}
	return min(len(names), chunkMax)
}

// canonical returns a text that is equal for equal segments only.
func canonical(segments map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		b.WriteString(strconv.Itoa(len(key)))
		b.WriteByte(':')
		b.WriteString(key)
		b.WriteString(strconv.Itoa(len(segments[key])))
		b.WriteByte(':')
		b.WriteString(segments[key])
	}
	return b.String()
}

// segmentsOf returns the segments of a topology. They are never nil, so that JSON has an object for them.
func segmentsOf(topology *csi.Topology) map[string]string {
	if topology.GetSegments() == nil {
		return map[string]string{}
	}
	return topology.GetSegments()
}

// sameRequirement compares as equal does: an empty list or map equals a missing one.
func sameRequirement(a, b *csi.TopologyRequirement) bool {
	same := func(a, b *csi.Topology) bool { return maps.Equal(a.GetSegments(), b.GetSegments()) }
	return (a == nil) == (b == nil) &&
		slices.EqualFunc(a.GetRequisite(), b.GetRequisite(), same) &&
		slices.EqualFunc(a.GetPreferred(), b.GetPreferred(), same)
}

// compress returns the value of an annotation with this content.
func compress(data []byte) string {
	if len(data) < compressFrom {
		return string(data)
	}
	var buffer bytes.Buffer
	w, err := flate.NewWriter(&buffer, flate.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return string(data) // does not happen: the level is valid, and a Buffer takes all
	}
	return compressed + base64.RawStdEncoding.EncodeToString(buffer.Bytes())
}

// decompress returns the content of an annotation's value.
func decompress(value string) ([]byte, error) {
	text, is := strings.CutPrefix(value, compressed)
	if !is {
		return []byte(value), nil
	}
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(data)), maxValue+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress it: %w", err)
	case len(content) > maxValue:
		return nil, fmt.Errorf("it has more than %d bytes", maxValue)
	}
	return content, nil
}
