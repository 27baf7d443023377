//go:build unix

package csidriver

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user and the group that own a file, and false if they are unknown.
func ownerOf(info fs.FileInfo) (user, group uint32, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return stat.Uid, stat.Gid, true
}
