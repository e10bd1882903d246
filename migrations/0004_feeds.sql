-- The trigger drop_feed deletes these rows with their feed. A foreign key would look up and lock the feed at every
-- refresh, although the same transaction has just updated it.
ALTER TABLE idivm_feed.refreshes DROP CONSTRAINT refreshes_feed_fkey;
