package backend

import (
	"fmt"
	"slices"
)

// Attach attaches a volume to a node and reports whether that is new. ErrNodeNotFound means an unknown node,
// ErrIncompatible an existing attachment to this node with another access, ErrInUse an attachment elsewhere that the
// access mode excludes, and ErrExhausted that the node has its maximum of volumes.
func (b *Backend) Attach(id, node string, a Attachment) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		if !slices.Contains(b.config.Nodes, node) {
			return false, fmt.Errorf("node %q: %w", node, ErrNodeNotFound)
		}
		if !v.Serves(a.Access) {
			return false, fmt.Errorf("volume %q was created for another access type: %w", id, ErrInvalid)
		}
		if have, attached := v.Attachments[node]; attached {
			if have != a {
				return false, fmt.Errorf("volume %q is attached to node %q in another way: %w", id, node, ErrIncompatible)
			}
			return false, nil
		}
		if err := elsewhere(*v, a); err != nil {
			return false, err
		}
		if limit := b.config.MaxVolumesPerNode; limit > 0 && b.attachedTo(node) >= limit {
			return false, fmt.Errorf("node %q has its %d volumes: %w", node, limit, ErrExhausted)
		}
		if v.Attachments == nil {
			v.Attachments = map[string]Attachment{}
		}
		v.Attachments[node] = a
		return true, nil
	})
}

// elsewhere rejects an attachment that the volume's other attachments exclude. The message names the other node, as
// the spec requires.
func elsewhere(v Volume, a Attachment) error {
	for _, node := range v.Nodes() {
		other := v.Attachments[node]
		switch {
		case !a.Access.Mode.ManyNodes() || !other.Access.Mode.ManyNodes():
			return fmt.Errorf("volume %q is attached to node %q: %w", v.ID, node, ErrInUse)
		case a.Access.Mode == MultiNodeSingleWriter && !a.ReadOnly && other.Access.Mode == MultiNodeSingleWriter &&
			!other.ReadOnly:
			return fmt.Errorf("volume %q has its one writer on node %q: %w", v.ID, node, ErrInUse)
		}
	}
	return nil
}

func (b *Backend) attachedTo(node string) int {
	n := 0
	for _, v := range b.volumes.byID {
		if _, attached := v.Attachments[node]; attached {
			n++
		}
	}
	return n
}

// Detach detaches a volume from a node, or from all nodes if node is empty, and reports whether it was attached.
func (b *Backend) Detach(id, node string) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		before := len(v.Attachments)
		if node == "" {
			v.Attachments = nil
		}
		delete(v.Attachments, node)
		return len(v.Attachments) < before, nil
	})
}

// Stage records that a volume is staged at a path, and reports whether that is new.
func (b *Backend) Stage(id, path string, m Mount) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		if !v.Serves(m.Access) {
			return false, fmt.Errorf("volume %q was created for another access type: %w", id, ErrExceedsVolume)
		}
		return mount(&v.Staged, id, path, m)
	})
}

// Unstage records that a volume is no longer staged at a path, and reports whether it was. It fails with ErrInUse
// while the volume is published on the same node.
func (b *Backend) Unstage(id, path string) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		staged, is := v.Staged[path]
		if !is {
			return false, nil
		}
		for target, published := range v.Published {
			if published.Node == staged.Node {
				return false, fmt.Errorf("volume %q is still published at %q: %w", id, target, ErrInUse)
			}
		}
		delete(v.Staged, path)
		return true, nil
	})
}

// Publish records that a volume is published at a path, and reports whether that is new. If stagedAt is not empty and
// the volume is not staged there, it fails with ErrNotPrepared. Other errors follow the table under NodePublishVolume
// in the CSI specification.
func (b *Backend) Publish(id, path, stagedAt string, m Mount) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		if !v.Serves(m.Access) {
			return false, fmt.Errorf("volume %q was created for another access type: %w", id, ErrExceedsVolume)
		}
		if _, staged := v.Staged[stagedAt]; stagedAt != "" && !staged {
			return false, fmt.Errorf("volume %q is not staged at %q: %w", id, stagedAt, ErrNotPrepared)
		}
		if _, again := v.Published[path]; !again {
			for other, have := range v.Published {
				if have.Node == m.Node && (!m.Access.Mode.ManyTargets() || !have.Access.Mode.ManyTargets()) {
					return false, fmt.Errorf("volume %q is published at %q: %w", id, other, ErrInUse)
				}
			}
		}
		return mount(&v.Published, id, path, m)
	})
}

// Unpublish records that a volume is no longer published at a path, and reports whether it was.
func (b *Backend) Unpublish(id, path string) (Volume, bool, error) {
	return b.update(id, func(v *Volume) (bool, error) {
		_, published := v.Published[path]
		delete(v.Published, path)
		return published, nil
	})
}

func mount(mounts *map[string]Mount, id, path string, m Mount) (bool, error) {
	if have, mounted := (*mounts)[path]; mounted {
		if have != m {
			return false, fmt.Errorf("volume %q is at %q in another way: %w", id, path, ErrIncompatible)
		}
		return false, nil
	}
	if *mounts == nil {
		*mounts = map[string]Mount{}
	}
	(*mounts)[path] = m
	return true, nil
}

// At returns the volume if it is staged or published at the path, and else ErrVolumeNotFound or ErrNotHere.
func (b *Backend) At(id, path string) (Volume, error) {
	v, err := b.Volume(id)
	if err != nil {
		return Volume{}, err
	}
	_, staged := v.Staged[path]
	_, published := v.Published[path]
	if !staged && !published {
		return Volume{}, fmt.Errorf("volume %q at %q: %w", id, path, ErrNotHere)
	}
	return v, nil
}
