// Package web serves one read-only page that shows what happens to PersistentVolumes, claims, pods and nodes, live.
//
// It answers GET and HEAD alone, reads with the rights of the config that it gets, and writes nothing to the cluster.
// Everything is below one prefix, which for a person's own page is a random token: who does not know it gets 404. A
// program that serves many authorizes each request, and open streams again. Host and Origin of requests are checked, so
// that no other page in the browser can read this one, DNS rebinding included. The cluster is read only while somebody
// looks.
//
// Facts come from package watch, rows, graphs and timelines from package view, and the page's files from package page.
package web
