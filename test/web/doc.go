// Package web tests the page of kubectl reclaim web as a person uses it: the plugin serves it from a real control
// plane, and Chromium shows it. Pictures of each view are kept in .build/screenshots.
//
//	go -C test/web test -race ./...
//
// It is a module of its own, for what drives the browser.
package web
