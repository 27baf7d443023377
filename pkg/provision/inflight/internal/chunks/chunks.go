// Package chunks stores the topologies of CreateVolume requests, of which a log keeps each long list once.
//
// In the JSON form of a TopologyRequirement with a segment for each node, both lists grow with the cluster and hold the
// same topologies. So an entry refers to chunks of the requisite list, and its preferred list to runs of that list.
// A chunk is named by a hash of its content, so that equal lists share it, and a reader can prove that it is intact.
package chunks

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
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/utils/lru"
)

const (
	// Inline is the length of the longest list of topologies that an entry stores itself.
	Inline = 8
	// mean and most are the average and the maximum number of topologies in a chunk. The content decides the end of a
	// chunk, so that a joining or leaving node changes a single chunk of a long list.
	mean, most = 512, 2048
	// kept bounds the number of cached chunks of a Log. At 5,000 nodes a list has about 20.
	kept = 512
	// compressFrom is the size in bytes from which the value of an annotation is compressed. Each PUT carries all entries
	// of its Lease, so entries of an ordinary size of 1.5 KB are compressed too.
	compressFrom = 512
	// compressed begins the value of a compressed annotation.
	compressed = "deflate:"
	// maxContent limits the decompressed value of an annotation in the process' own log, in bytes.
	maxContent = 16 << 20
)

type (
	// Requirement is the stored form of a TopologyRequirement.
	Requirement struct {
		// Requisite is a short list itself, while Chunks has the hashes of the chunks of a long list.
		Requisite []map[string]string `json:"requisite,omitempty"`
		Chunks    []string            `json:"chunks,omitempty"`
		Preferred []run               `json:"preferred,omitempty"`
	}
	// run stands for Count topologies of the requisite list from index From on. If Count is 0, it is one topology
	// that the list does not contain.
	run struct {
		From     int               `json:"from,omitempty"`
		Count    int               `json:"count,omitempty"`
		Segments map[string]string `json:"segments,omitempty"`
	}
	// columns is the stored form of a chunk. It has a column of values for each key, because values of one key resemble
	// each other and compress better than whole topologies do. A column has Count values, nil for a topology without the
	// key.
	columns struct {
		Count   int                  `json:"count"`
		Columns map[string][]*string `json:"columns"`
	}
)

// chunk is a part of a requisite list.
type chunk struct {
	value      string // of its annotation
	topologies []*csi.Topology
}

// Cache has the known chunks of a log, by hash. Entries share the topologies, which must not be changed. The type is
// safe for concurrent use.
type Cache struct {
	lease string // name of the Lease that stores them, for errors
	// known is nil for a reader without use for topologies, whose entries have at most their first preferred one. Their
	// chunks must exist nevertheless.
	known *lru.Cache
}

// New returns the cache of a process that uses the topologies of its entries. lease names the Lease with the chunks.
func New(lease string) *Cache { return &Cache{lease, lru.New(kept)} }

// WithoutUse returns the cache of a reader without use for topologies.
func WithoutUse(lease string) *Cache { return &Cache{lease: lease} }

// Store returns the stored form of a requirement, nil for none, and adds the values of its chunks to refers, by hash.
func (c *Cache) Store(r *csi.TopologyRequirement, refers map[string]string) (*Requirement, error) {
	if r == nil {
		return nil, nil
	}
	requisite := r.GetRequisite()
	names := namesOf(requisite)
	s := &Requirement{Preferred: runs(r.GetPreferred(), names.first())}
	if len(requisite) <= Inline {
		for _, topology := range requisite {
			s.Requisite = append(s.Requisite, segmentsOf(topology))
		}
		return s, nil
	}
	for begin := 0; begin < len(requisite); {
		end := names.chunkEnd(begin)
		hash, one, err := c.of(names.joined(begin, end), requisite[begin:end])
		if err != nil {
			return nil, err
		}
		s.Chunks = append(s.Chunks, hash)
		refers[hash] = one.value
		begin = end
	}
	return s, nil
}

// of returns the chunk of topologies with these joined names, and its hash.
func (c *Cache) of(names []byte, topologies []*csi.Topology) (string, chunk, error) {
	sum := sha256.Sum256(names)
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
	one.value = Compress(value)
	c.known.Add(hash, one)
	return hash, one, nil
}

// Load returns the requirement of a stored form, and adds the values of its chunks to refers, by hash. value returns
// the stored value of a chunk.
func (c *Cache) Load(s *Requirement, value func(hash string) (string, bool),
	refers map[string]string) (*csi.TopologyRequirement, error) {
	if c.known == nil {
		return s.first(), c.lacking(s.Chunks, value)
	}
	r := &csi.TopologyRequirement{}
	for _, segments := range s.Requisite {
		r.Requisite = append(r.Requisite, &csi.Topology{Segments: segments})
	}
	for _, hash := range s.Chunks {
		one, err := c.read(hash, value)
		if err != nil {
			return nil, c.unusable(hash, err)
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

// first returns a requirement of the first preferred topology alone, nil if there is none or a chunk has it.
func (s *Requirement) first() *csi.TopologyRequirement {
	if len(s.Preferred) == 0 {
		return nil
	}
	one := s.Preferred[0]
	if one.Count > 0 {
		if one.From < 0 || one.From >= len(s.Requisite) {
			return nil
		}
		one.Segments = s.Requisite[one.From]
	}
	return &csi.TopologyRequirement{Preferred: []*csi.Topology{{Segments: one.Segments}}}
}

// lacking returns an error if a chunk does not exist.
func (c *Cache) lacking(hashes []string, value func(hash string) (string, bool)) error {
	for _, hash := range hashes {
		if _, found := value(hash); !found {
			return c.unusable(hash, errMissing)
		}
	}
	return nil
}

var errMissing = errors.New("it is missing")

func (c *Cache) unusable(hash string, err error) error {
	return fmt.Errorf("chunk %s of the topology requirement, in Lease %s: %w", hash, c.lease, err)
}

// read returns the chunk with this hash, and checks its content against the hash.
func (c *Cache) read(hash string, value func(hash string) (string, bool)) (chunk, error) {
	if known, found := c.known.Get(hash); found {
		one, _ := known.(chunk)
		return one, nil
	}
	text, found := value(hash)
	if !found {
		return chunk{}, errMissing
	}
	data, err := Content(text)
	if err != nil {
		return chunk{}, err
	}
	var stored columns
	if err := json.Unmarshal(data, &stored); err != nil {
		return chunk{}, err
	}
	topologies, err := stored.topologies()
	if err != nil {
		return chunk{}, err
	}
	is, one, err := c.of(namesOf(topologies).joined(0, len(topologies)), topologies)
	if err == nil && is != hash {
		err = errors.New("its content has another hash")
	}
	return one, err
}

func columnsOf(topologies []*csi.Topology) columns {
	s := columns{Count: len(topologies), Columns: map[string][]*string{}}
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

func (s columns) topologies() ([]*csi.Topology, error) {
	if s.Count < 0 || s.Count > most {
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
func runs(preferred []*csi.Topology, at map[string]int) []run {
	var all []run
	var name []byte
	var keys []string
	for _, topology := range preferred {
		name, keys = appendName(name[:0], topology.GetSegments(), keys)
		i, found := at[string(name)]
		last := len(all) - 1
		switch {
		case !found:
			all = append(all, run{Segments: topology.GetSegments()})
		case last >= 0 && all[last].Count > 0 && all[last].From+all[last].Count == i:
			all[last].Count++
		default:
			all = append(all, run{From: i, Count: 1})
		}
	}
	return all
}

// nameList has the names of a list of topologies, each followed by a zero byte. Only equal segments have equal names.
type nameList struct {
	text []byte
	// begins has the begin of each name, and the length of text.
	begins []int
}

func namesOf(topologies []*csi.Topology) nameList {
	n := nameList{begins: make([]int, 0, len(topologies)+1)}
	var keys []string
	for _, topology := range topologies {
		n.begins = append(n.begins, len(n.text))
		n.text, keys = appendName(n.text, topology.GetSegments(), keys)
		n.text = append(n.text, 0)
		if len(n.begins) == 1 { // others are about as long
			n.text = slices.Grow(n.text, len(n.text)*len(topologies)*9/8)
		}
	}
	n.begins = append(n.begins, len(n.text))
	return n
}

// joined returns the names from begin to end, with a zero byte between two of them.
func (n nameList) joined(begin, end int) []byte {
	from, to := n.begins[begin], n.begins[end]
	return n.text[from:max(from, to-1)]
}

// first returns the index of the first topology of each name.
func (n nameList) first() map[string]int {
	text, at := string(n.text), make(map[string]int, len(n.begins))
	for i, begin := range n.begins[:len(n.begins)-1] {
		name := text[begin : n.begins[i+1]-1]
		if _, found := at[name]; !found {
			at[name] = i
		}
	}
	return at
}

// chunkEnd returns the end of the chunk that begins at an index.
func (n nameList) chunkEnd(begin int) int {
	end, h := min(len(n.begins)-1, begin+most), fnv.New32a()
	for i := begin; i < end; i++ {
		h.Reset()
		h.Write(n.joined(i, i+1)) // never fails
		if h.Sum32()%mean == 0 {
			return i + 1
		}
	}
	return end
}

// appendName appends the name of a topology, and returns the sorted keys of its segments. keys are these of the
// topology before, which most often has the same ones.
func appendName(b []byte, segments map[string]string, keys []string) ([]byte, []string) {
	lacks := func(key string) bool { _, found := segments[key]; return !found }
	if len(keys) != len(segments) || slices.ContainsFunc(keys, lacks) {
		keys = slices.Sorted(maps.Keys(segments))
	}
	for _, key := range keys {
		for _, text := range [...]string{key, segments[key]} {
			b = strconv.AppendInt(b, int64(len(text)), 10)
			b = append(b, ':')
			b = append(b, text...)
		}
	}
	return b, keys
}

// segmentsOf returns the segments of a topology. They are never nil, so that JSON has an object for them.
func segmentsOf(topology *csi.Topology) map[string]string {
	if topology.GetSegments() == nil {
		return map[string]string{}
	}
	return topology.GetSegments()
}

// Same compares two requirements as the driver sees them: an empty list or map equals a missing one.
func Same(a, b *csi.TopologyRequirement) bool {
	same := func(a, b *csi.Topology) bool { return maps.Equal(a.GetSegments(), b.GetSegments()) }
	return (a == nil) == (b == nil) &&
		slices.EqualFunc(a.GetRequisite(), b.GetRequisite(), same) &&
		slices.EqualFunc(a.GetPreferred(), b.GetPreferred(), same)
}

// compressors has writers of compressed text, because each takes 800 KB.
var compressors = sync.Pool{New: func() any {
	w, err := flate.NewWriter(io.Discard, flate.BestCompression)
	if err != nil {
		return nil
	}
	return w
}}

// Compress returns the value of an annotation with this content.
func Compress(data []byte) string {
	if len(data) < compressFrom {
		return string(data)
	}
	var buffer bytes.Buffer
	w, is := compressors.Get().(*flate.Writer)
	if !is {
		return string(data) // does not happen, as no failure below does: the level is valid, and a Buffer takes all
	}
	defer compressors.Put(w)
	w.Reset(&buffer)
	if _, err := w.Write(data); err != nil {
		return string(data)
	}
	if err := w.Close(); err != nil {
		return string(data)
	}
	return compressed + base64.RawStdEncoding.EncodeToString(buffer.Bytes())
}

// Content returns the content of an annotation's value in the process' own log.
func Content(value string) ([]byte, error) {
	content, err := Decompress(value, maxContent)
	if err == nil && len(content) > maxContent {
		err = fmt.Errorf("it has more than %d bytes", maxContent)
	}
	return content, err
}

// Decompress returns the content of an annotation's value, but of a longer one than limit only one byte more than that.
// If it fails, it returns the bytes that it decompressed before.
func Decompress(value string, limit int) ([]byte, error) {
	var from io.Reader = strings.NewReader(value)
	if text, is := strings.CutPrefix(value, compressed); is {
		data, err := base64.RawStdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		from = flate.NewReader(bytes.NewReader(data))
	}
	content, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		err = fmt.Errorf("decompress it: %w", err)
	}
	return content, err
}
