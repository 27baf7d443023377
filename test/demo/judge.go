//go:build unix

package main

import (
	"errors"
	"fmt"
)

// errWrong is wrapped when a scene did not end as it should.
var errWrong = errors.New("a verdict is wrong")

// judge returns nil if every scene ended as it should, else which did not, and how.
func judge(results []result) error {
	var wrong []error
	for _, r := range results {
		if !r.right() {
			wrong = append(wrong, fmt.Errorf("%w: %s: want %v; seen %v", errWrong, r.scene.title, r.scene.want, r.seen))
		}
	}
	return errors.Join(wrong...)
}
