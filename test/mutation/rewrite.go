package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// rewriter inserts text into a file. Lines keep their numbers.
type rewriter struct {
	fset  *token.FileSet
	edits []edition
}

// edition replaces length bytes at offset by text. At one offset, editions that close a node come first.
type edition struct {
	offset, length int
	text           string
	closes         bool
	// width is the width of the node that the text opens or closes.
	width int
}

func (r *rewriter) offset(at token.Pos) int { return r.fset.Position(at).Offset }

// wrap puts a node between two texts. Of two calls with nodes of one range, the first is the outer one.
func (r *rewriter) wrap(node ast.Node, before, after string) {
	from, to := r.offset(node.Pos()), r.offset(node.End())
	r.edits = append(r.edits,
		edition{offset: from, text: before, width: to - from},
		edition{offset: to, text: after, width: to - from, closes: true})
}

// outermost is a width that no node has.
const outermost = 1 << 30

// replace replaces the text between two positions.
func (r *rewriter) replace(from, to token.Pos, text string) {
	start := r.offset(from)
	r.edits = append(r.edits, edition{offset: start, length: r.offset(to) - start, text: text, width: outermost})
}

// apply returns the edited text.
func (r *rewriter) apply(text []byte) []byte {
	// Nodes that close at one offset do so from the inside: the later of two calls first.
	all := make([]edition, 0, len(r.edits))
	for _, e := range r.edits {
		if !e.closes {
			all = append(all, e)
		}
	}
	for _, e := range slices.Backward(r.edits) {
		if e.closes {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b edition) int {
		switch {
		case a.offset != b.offset:
			return cmp.Compare(a.offset, b.offset)
		case a.closes != b.closes:
			if a.closes {
				return -1
			}
			return 1
		case a.closes:
			return cmp.Compare(a.width, b.width)
		}
		return cmp.Compare(b.width, a.width)
	})
	var out strings.Builder
	at := 0
	for _, e := range all {
		out.Write(text[at:e.offset])
		out.WriteString(e.text)
		at = e.offset + e.length
	}
	out.Write(text[at:])
	return []byte(out.String())
}
