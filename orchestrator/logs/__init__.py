"""Reads, searches, shows and follows job logs.

A log may have any content and size, on NFS or Lustre. So it is opened anew for each read (NFS shows
writes of other hosts on open), never watched (inotify misses remote writes), and never held in
memory as a whole.
"""
