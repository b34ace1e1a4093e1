package kv

// idleList is a queue of pages, the one that was idle for longest in front: a doubly linked list over page numbers, so
// that any page can leave it when it gets a holder again.
type idleList struct {
	links       []idleLink // by page; made with the pool's Prefixes
	front, back int32
	n           int
}

type idleLink struct{ prev, next int32 }

const noPage = -1

func newIdleList(pages int) idleList {
	return idleList{links: make([]idleLink, pages), front: noPage, back: noPage}
}

func (l *idleList) push(page int32) {
	l.links[page] = idleLink{prev: l.back, next: noPage}
	if l.back == noPage {
		l.front = page
	} else {
		l.links[l.back].next = page
	}
	l.back = page
	l.n++
}

func (l *idleList) remove(page int32) {
	k := l.links[page]
	if k.prev == noPage {
		l.front = k.next
	} else {
		l.links[k.prev].next = k.next
	}
	if k.next == noPage {
		l.back = k.prev
	} else {
		l.links[k.next].prev = k.prev
	}
	l.n--
}
