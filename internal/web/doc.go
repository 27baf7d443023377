// Package web serves one read-only page that shows, live, the state and next steps of PersistentVolumes, claims, pods
// and nodes.
//
// The server only answers GET and HEAD, reads with the rights of the config that it gets, and writes nothing to the
// cluster. All paths are below one prefix, which is a random token for a person's own page; any other path gets 404.
// A program that serves many people authorizes each request, and open streams again and again. The server
// checks Host and Origin, so that no other page in the browser can read this one, not even by DNS rebinding. It reads
// the cluster only while a client is connected, and for five minutes after that.
//
// Package watch provides the facts, package view the rows, graphs and timelines, and package page the page's files.
package web
